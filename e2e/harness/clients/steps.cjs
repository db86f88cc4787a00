'use strict';
// Runs the steps of a scenario and prints what became of each as a line of JSON.

// plain turns a value into JSON's types; big integers keep every digit.
function encode(value) {
  if (value === undefined) return '{"is":"undefined"}';
  if (value === null || typeof value === 'boolean' || typeof value === 'string') return JSON.stringify(value);
  if (typeof value === 'bigint') return value.toString();
  if (typeof value === 'number') return Number.isFinite(value) ? JSON.stringify(value) : JSON.stringify(String(value));
  if (value instanceof Uint8Array) return JSON.stringify({ bytes: Buffer.from(value).toString('hex') });
  if (Array.isArray(value)) return '[' + value.map(encode).join(',') + ']';
  if (value instanceof Map) value = Object.fromEntries(value);
  const fields = Object.entries(value).filter(([, v]) => typeof v !== 'function' && v !== undefined);
  return '{' + fields.map(([k, v]) => JSON.stringify(k) + ':' + encode(v)).join(',') + '}';
}

function failure(error) {
  let message = String(error?.rawMessage ?? error?.message ?? error);
  if (error?.data !== undefined) message += ' ' + encode(error.data); // what the server said
  return { type: error?.constructor?.name ?? typeof error, message, code: String(error?.status ?? error?.code ?? '') };
}

// step records the outcome of call() and returns its result, undefined where it failed.
async function step(name, call) {
  let result, line;
  try {
    result = await call();
    line = `{"step":${JSON.stringify(name)},"result":${encode(result)}}`;
  } catch (error) {
    line = JSON.stringify({ step: name, error: failure(error) });
  }
  process.stdout.write(line + '\n');
  return result;
}

// option reads --name VALUE from the command line.
function option(name) {
  const at = process.argv.indexOf('--' + name);
  return at < 0 ? undefined : process.argv[at + 1];
}

module.exports = { step, option };
