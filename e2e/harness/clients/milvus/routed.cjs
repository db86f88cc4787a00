'use strict';
// Searches of a collection with a route, as routed.py's.

const { MilvusClient } = require('@zilliz/milvus2-sdk-node');
const path = require('node:path');
const { step, option } = require(path.join(__dirname, '..', 'steps.cjs'));

async function main() {
  const query = JSON.parse(option('query'));
  const c = new MilvusClient({ address: option('address'), logLevel: 'error' });
  await c.connectPromise;
  const search = async (more) => {
    const { status, results } = await c.search({ collection_name: 'routed', data: query, limit: 5, ...more });
    if (status.error_code !== 'Success') throw new Error(status.reason);
    const lists = Array.isArray(results[0]) ? results : [results];
    return lists.map((list) => list.map(({ id, score, ...entity }) => ({ id: Number(id), score, entity })));
  };
  const every = ['id', 'name', 'on', 'price', 'more', 'extra', 'vec'];
  await step('rescored: plain', () => search());
  await step('rescored: fields', () => search({ output_fields: every }));
  await step('rescored: every field', () => search({ output_fields: ['*'] }));
  await step('rescored: offset', () => search({ offset: 2 }));
  await step('rescored: filter', () => search({ filter: 'on == true' }));
  await step('rescored: field', () => search({ anns_field: 'vec' }));
  await step('rescored: several', () => search({ data: [query, query] }));
  await step('passed: radius', () => search({ params: { radius: 0.1 } }));
  await step('passed: group', () => search({ group_by_field: 'name' }));
  await step('rescored: Strong, as the collection', () => search({ consistency_level: 'Strong' }));
  await step('passed: depth', () => search({ limit: 31 }));
  await step('rescored: partition', () => search({ partition_names: ['_default'] }));
  await step('passed: wrong dimension', () => search({ data: [1] }));
  await c.closeConnection();
}

main().then(() => process.exit(0), (error) => { console.error(error); process.exit(1); });
