'use strict';
// What the Node client can ask of a Milvus; a refusal is an answer too.

const { MilvusClient, DataType } = require('@zilliz/milvus2-sdk-node');
const path = require('node:path');
const { step, option } = require(path.join(__dirname, '..', 'steps.cjs'));

const DIM = 4;
const name = 'harness_node';
const vector = (i, dim = DIM) => Array.from({ length: dim }, (_, j) => Math.fround(Math.sin((j + 1) * (i + 1) * 0.37)));

const row = (i) => ({
  id: i,
  vec: vector(i),
  text: `t${i % 5} é😀"<&>`,
  flag: i % 2 === 0,
  small: i - 10,
  real: i / 7,
  doc: { n: i, deep: { x: [1, 2.5, null] }, '': 'empty key' },
  longs: Array.from({ length: i % 4 }, (_, j) => j),
  extra: `dynamic ${i}`,
});

const fields = [
  { name: 'id', data_type: DataType.Int64, is_primary_key: true, autoID: false },
  { name: 'vec', data_type: DataType.FloatVector, dim: DIM },
  { name: 'text', data_type: DataType.VarChar, max_length: 100 },
  { name: 'flag', data_type: DataType.Bool },
  { name: 'small', data_type: DataType.Int8 },
  { name: 'real', data_type: DataType.Double },
  { name: 'doc', data_type: DataType.JSON },
  { name: 'longs', data_type: DataType.Array, element_type: DataType.Int64, max_capacity: 8 },
];

async function server(c) {
  await step('version', () => c.getVersion());
  await step('health', () => c.checkHealth());
  await step('collections', () => c.showCollections());
  await step('metrics of nothing', () => c.getMetric({ request: { metric_type: 'nothing' } }));
  await step('databases', () => c.listDatabases());
  await step('create a database', () => c.createDatabase({ db_name: 'harness_node_db' }));
  await step('describe a database', () => c.describeDatabase({ db_name: 'harness_node_db' }));
  await step('use it', () => c.use({ db_name: 'harness_node_db' }));
  await step('collections in it', () => c.showCollections());
  await step('use the default one', () => c.use({ db_name: 'default' }));
  await step('drop a database', () => c.dropDatabase({ db_name: 'harness_node_db' }));
  await step('users', () => c.listUsers());
  await step('create a user', () => c.createUser({ username: 'harness_node', password: 'Passw0rd!' }));
  await step('update a user', () => c.updateUser({ username: 'harness_node', oldPassword: 'Passw0rd!', newPassword: 'Passw0rd?' }));
  await step('describe a user', () => c.describeUser({ username: 'harness_node' }));
  await step('create a role', () => c.createRole({ roleName: 'harness_node_role' }));
  await step('has a role', () => c.hasRole({ roleName: 'harness_node_role' }));
  await step('give a role', () => c.addUserToRole({ username: 'harness_node', roleName: 'harness_node_role' }));
  await step('grant', () => c.grantPrivilege({ roleName: 'harness_node_role', object: 'Collection', objectName: '*', privilegeName: 'Search' }));
  await step('grants', () => c.listGrants({ roleName: 'harness_node_role' }));
  await step('revoke', () => c.revokePrivilege({ roleName: 'harness_node_role', object: 'Collection', objectName: '*', privilegeName: 'Search' }));
  await step('take a role', () => c.removeUserFromRole({ username: 'harness_node', roleName: 'harness_node_role' }));
  await step('roles', () => c.listRoles());
  await step('drop a role', () => c.dropRole({ roleName: 'harness_node_role' }));
  await step('delete a user', () => c.deleteUser({ username: 'harness_node' }));
  await step('resource groups', () => c.listResourceGroups());
}

async function rows(c) {
  await step('create', () => c.createCollection({ collection_name: name, fields, enable_dynamic_field: true, consistency_level: 'Session' }));
  await step('create again', () => c.createCollection({ collection_name: name, fields }));
  await step('describe', () => c.describeCollection({ collection_name: name }));
  await step('describe what is not there', () => c.describeCollection({ collection_name: 'absent' }));
  await step('has', () => c.hasCollection({ collection_name: name }));
  await step('has not', () => c.hasCollection({ collection_name: 'absent' }));
  await step('search without an index', () => c.search({ collection_name: name, data: vector(1), limit: 3 }));
  await step('index', () => c.createIndex({ collection_name: name, field_name: 'vec', index_type: 'FLAT', metric_type: 'COSINE' }));
  await step('index of an unknown kind', () => c.createIndex({ collection_name: name, field_name: 'text', index_type: 'NONE', metric_type: 'COSINE' }));
  await step('index state', () => c.getIndexState({ collection_name: name, field_name: 'vec' }));
  await step('load', () => c.loadCollectionSync({ collection_name: name }));
  await step('load state', () => c.getLoadState({ collection_name: name }));
  await step('loading progress', () => c.getLoadingProgress({ collection_name: name }));
  await step('insert', () => c.insert({ collection_name: name, data: Array.from({ length: 40 }, (_, i) => row(i)) }));
  if (option('token')) await step('insert a row without a field', () => c.insert({ collection_name: name, data: [{ id: 1, vec: vector(1) }] })); // it ends milvus-lite
  await step('insert a vector too short', () => c.insert({ collection_name: name, data: [{ ...row(1), vec: [1] }] }));
  await step('insert into what is not there', () => c.insert({ collection_name: 'absent', data: [row(1)] }));
  await step('upsert', () => c.upsert({ collection_name: name, data: [{ ...row(3), text: 'upserted' }, row(40)] }));
  await step('count', () => c.count({ collection_name: name }));
  await step('count with a filter', () => c.count({ collection_name: name, expr: 'small > 5' }));
  await step('get', () => c.get({ collection_name: name, ids: [3, 5, 99], output_fields: ['text', 'doc', 'longs', 'extra', 'vec'] }));
}

async function reads(c) {
  for (const filter of ['id in [1, 2, 99]', 'flag == true and id < 7', 'text like "t1%"', 'doc["n"] == 7', 'array_contains(longs, 2) and id < 9', 'extra == "dynamic 4"', 'id ==', 'absent == 1']) {
    await step(`query: ${filter}`, () => c.query({ collection_name: name, filter, output_fields: ['id', 'text'] }));
    await step(`search: ${filter}`, () => c.search({ collection_name: name, data: vector(7), filter, limit: 3, output_fields: ['id', 'real'] }));
  }
  await step('query a page', () => c.query({ collection_name: name, filter: 'id >= 0', limit: 4, offset: 3, output_fields: ['*'] }));
  await step('query with values', () => c.query({ collection_name: name, filter: 'id in {ids}', exprValues: { ids: [4, 5] }, output_fields: ['id'] }));
  for (const [what, more] of Object.entries({
    'plain': {},
    'every field': { output_fields: ['*'] },
    'fields in an order': { output_fields: ['longs', 'text', 'vec', 'flag', 'extra'] },
    'an offset': { offset: 4 },
    'params': { params: { nprobe: 8 } },
    'a metric': { metric_type: 'COSINE' },
    'a wrong metric': { metric_type: 'L2' },
    'range': { params: { radius: 0.2, range_filter: 0.9 } },
    'groups': { group_by_field: 'small' },
    'rounding': { round_decimal: 2 },
    'Strong': { consistency_level: 'Strong' },
    'Eventually': { consistency_level: 'Eventually' },
    'a partition': { partition_names: ['_default'] },
    'a partition that is not there': { partition_names: ['absent'] },
    'the field': { anns_field: 'vec' },
    'no such field': { anns_field: 'absent' },
    'too many': { limit: 16385 },
    'ignore_growing': { ignore_growing: false },
    'values': { filter: 'id in {ids}', exprValues: { ids: [4, 5] } },
  })) {
    await step(`search with ${what}`, () => c.search({ collection_name: name, data: vector(7), limit: 4, ...more }));
  }
  await step('search several', () => c.search({ collection_name: name, data: [vector(7), vector(8), vector(9)], limit: 2, output_fields: ['text'] }));
  await step('search a vector too long', () => c.search({ collection_name: name, data: vector(7, 9), limit: 2 }));
  await step('hybrid search of one field', () => c.search({ collection_name: name, data: [{ data: vector(7), anns_field: 'vec', limit: 5 }], limit: 3, rerank: { strategy: 'rrf', params: { k: 60 } } }));
  await step('many at a time', () => Promise.all(Array.from({ length: 24 }, (_, i) => c.search({ collection_name: name, data: vector(i), limit: 2, output_fields: ['text'] }))));
  await step('query iterator', async () => {
    const pages = [];
    for await (const page of await c.queryIterator({ collection_name: name, batchSize: 11, expr: 'id >= 0', limit: 30, output_fields: ['id'] })) pages.push(page);
    return pages;
  });
  await step('search iterator', async () => {
    const pages = [];
    for await (const page of await c.searchIterator({ collection_name: name, data: vector(7), batchSize: 7, limit: 20, output_fields: ['id'] })) pages.push(page);
    return pages;
  });
}

async function rest(c) {
  await step('partition', () => c.createPartition({ collection_name: name, partition_name: 'part' }));
  await step('partitions', async () => (await c.listPartitions({ collection_name: name })).partition_names);
  await step('has a partition', () => c.hasPartition({ collection_name: name, partition_name: 'part' }));
  await step('alias', () => c.createAlias({ collection_name: name, alias: 'harness_node_alias' }));
  await step('aliases', () => c.listAliases({ collection_name: name }));
  await step('search by an alias', () => c.search({ collection_name: 'harness_node_alias', data: vector(7), limit: 2 }));
  await step('drop an alias', () => c.dropAlias({ alias: 'harness_node_alias' }));
  await step('delete by ids', () => c.delete({ collection_name: name, ids: [1, 2] }));
  await step('delete by a filter', () => c.deleteEntities({ collection_name: name, expr: 'id in [3, 4]' }));
  await step('count after deletes', () => c.count({ collection_name: name }));
  await step('statistics of what is not there', () => c.getCollectionStatistics({ collection_name: 'absent' }));
  await step('replicas of what is not there', () => c.getReplicas({ collectionID: '1' }));
  await step('rename', () => c.renameCollection({ collection_name: name, new_collection_name: 'harness_node2' }));
  await step('rename back', () => c.renameCollection({ collection_name: 'harness_node2', new_collection_name: name }));
  await step('alter', () => c.alterCollectionProperties({ collection_name: name, properties: { 'collection.ttl.seconds': 86400 } }));
  await step('indexes', async () => (await c.listIndexes({ collection_name: name })).indexes);
  await step('release', () => c.releaseCollection({ collection_name: name }));
  await step('search what is released', () => c.search({ collection_name: name, data: vector(7), limit: 2 }));
  await step('drop an index', () => c.dropIndex({ collection_name: name, field_name: 'vec' }));
  await step('drop', () => c.dropCollection({ collection_name: name }));
  await step('drop again', () => c.dropCollection({ collection_name: name }));
}

async function main() {
  const [username, password] = (option('token') ?? '').split(':');
  const c = new MilvusClient({ address: option('address'), logLevel: 'error', ...(username ? { username, password } : {}) });
  await c.connectPromise;
  await c.dropCollection({ collection_name: name }).catch(() => {});
  await server(c);
  await rows(c);
  await reads(c);
  await rest(c);
  if (username) {
    const wrong = new MilvusClient({ address: option('address'), username, password: 'wrong', logLevel: 'error', maxRetries: 0 });
    await step('a wrong password', async () => { await wrong.connectPromise; return wrong.showCollections(); });
    await wrong.closeConnection().catch(() => {});
  }
  await c.closeConnection();
}

main().then(() => process.exit(0), (error) => { console.error(error); process.exit(1); });
