'use strict';
// Asks the questions of a file on a routed collection; prints ids and the bits of the scores.
const fs = require('node:fs');
const { step, option } = require('../steps.cjs');

console.warn = () => {};
const questions = fs.readFileSync(option('requests'), 'utf8').split('\n').filter(Boolean).map((line) => JSON.parse(line));
const bits = (score) => new Uint32Array(new Float32Array([score]).buffer)[0];

async function rest(url, apiKey) {
  const { QdrantClient } = require('@qdrant/js-client-rest');
  const c = new QdrantClient({ url, apiKey });
  const hits = (points) => points.map((p) => [p.id, bits(p.score)]);
  const request = (q) => ({ limit: q.limit, offset: q.offset, ...(q.below && { filter: { must: [{ key: 'item', range: { lt: q.below } }] } }) });
  for (const q of questions) {
    await step(q.step, () => c.query('questions', { query: q.vector, ...request(q) }).then((r) => hits(r.points)));
    if (c.search) await step('search ' + q.step, () => c.search('questions', { vector: q.vector, ...request(q) }).then(hits));
  }
  await step('batch', () => c.queryBatch('questions', { searches: questions.map((q) => ({ query: q.vector, ...request(q) })) }).then((all) => all.map((r) => hits(r.points))));
}

async function grpc(url, apiKey) {
  const { QdrantClient } = require('@qdrant/js-client-grpc');
  const points = new QdrantClient({ url, apiKey }).api('points');
  const hits = (r) => r.result.map((p) => [p.id.pointIdOptions.value, bits(p.score)]);
  const request = (q) => ({
    collectionName: 'questions', limit: BigInt(q.limit), offset: BigInt(q.offset),
    ...(q.below && { filter: { must: [{ conditionOneOf: { case: 'field', value: { key: 'item', range: { lt: q.below } } } }] } }),
  });
  const query = (q) => ({ ...request(q), query: { variant: { case: 'nearest', value: { variant: { case: 'dense', value: { data: q.vector } } } } } });
  for (const q of questions) {
    await step(q.step, () => points.query(query(q)).then(hits));
    await step('search ' + q.step, () => points.search({ ...request(q), vector: q.vector }).then(hits));
  }
  await step('batch', () => points.queryBatch({ collectionName: 'questions', queryPoints: questions.map(query) }).then((r) => r.result.map(hits)));
}

(option('rest') ? rest(option('rest'), option('key')) : grpc(option('grpc'), option('key'))).then(
  () => process.exit(0),
  (error) => {
    console.error(error);
    process.exit(1);
  },
);
