'use strict';
// Makes the requests of a file, a line of JSON each, through the JavaScript
// clients: --rest URL or --grpc URL, --key KEY, --requests FILE. Requests that no
// method of the client makes are left out; some steps of its own follow.
const fs = require('node:fs');
const path = require('node:path');
const { step, option } = require('../steps.cjs');

const requests = fs.readFileSync(option('requests'), 'utf8').split('\n').filter(Boolean).map((line) => JSON.parse(line));
const vector = [0.3, -1, 0.5, 2];
// Once the first process has reported something, an answer may come between two steps of the client.
const silent = () => {};
console.warn = silent;

// The methods of the REST client by their requests; b is the body with the query's arguments.
const routes = [
  ['GET', /^\/$/, (c) => c.versionInfo()],
  ['GET', /^\/collections$/, (c) => c.getCollections()],
  ['GET', /^\/aliases$/, (c) => c.getAliases()],
  ['POST', /^\/collections\/aliases$/, (c, _, b) => c.updateCollectionAliases(b)],
  ['GET', /^\/collections\/([^/]+)$/, (c, [n]) => c.getCollection(n)],
  ['PUT', /^\/collections\/([^/]+)$/, (c, [n], b) => c.createCollection(n, b)],
  ['PATCH', /^\/collections\/([^/]+)$/, (c, [n], b) => c.updateCollection(n, b)],
  ['DELETE', /^\/collections\/([^/]+)$/, (c, [n], b) => c.deleteCollection(n, b)],
  ['GET', /^\/collections\/([^/]+)\/exists$/, (c, [n]) => c.collectionExists(n)],
  ['GET', /^\/collections\/([^/]+)\/aliases$/, (c, [n]) => c.getCollectionAliases(n)],
  ['GET', /^\/collections\/([^/]+)\/cluster$/, (c, [n]) => c.collectionClusterInfo(n)],
  ['POST', /^\/collections\/([^/]+)\/cluster$/, (c, [n], b) => c.updateCollectionCluster(n, b)],
  ['PUT', /^\/collections\/([^/]+)\/index$/, (c, [n], b) => c.createPayloadIndex(n, b)],
  ['DELETE', /^\/collections\/([^/]+)\/index\/([^/]+)$/, (c, [n, f], b) => c.deletePayloadIndex(n, f, b)],
  ['PUT', /^\/collections\/([^/]+)\/points$/, (c, [n], b) => c.upsert(n, b)],
  ['POST', /^\/collections\/([^/]+)\/points$/, (c, [n], b) => c.retrieve(n, b)],
  ['POST', /^\/collections\/([^/]+)\/points\/delete$/, (c, [n], b) => c.delete(n, b)],
  ['PUT', /^\/collections\/([^/]+)\/points\/vectors$/, (c, [n], b) => c.updateVectors(n, b)],
  ['POST', /^\/collections\/([^/]+)\/points\/vectors\/delete$/, (c, [n], b) => c.deleteVectors(n, b)],
  ['POST', /^\/collections\/([^/]+)\/points\/payload$/, (c, [n], b) => c.setPayload(n, b)],
  ['PUT', /^\/collections\/([^/]+)\/points\/payload$/, (c, [n], b) => c.overwritePayload(n, b)],
  ['POST', /^\/collections\/([^/]+)\/points\/payload\/delete$/, (c, [n], b) => c.deletePayload(n, b)],
  ['POST', /^\/collections\/([^/]+)\/points\/payload\/clear$/, (c, [n], b) => c.clearPayload(n, b)],
  ['POST', /^\/collections\/([^/]+)\/points\/batch$/, (c, [n], b) => c.batchUpdate(n, b)],
  ['POST', /^\/collections\/([^/]+)\/points\/scroll$/, (c, [n], b) => c.scroll(n, b)],
  ['POST', /^\/collections\/([^/]+)\/points\/count$/, (c, [n], b) => c.count(n, b)],
  ['POST', /^\/collections\/([^/]+)\/facet$/, (c, [n], b) => c.facet(n, b)],
  ['POST', /^\/collections\/([^/]+)\/points\/query$/, (c, [n], b) => c.query(n, b)],
  ['POST', /^\/collections\/([^/]+)\/points\/query\/batch$/, (c, [n], b) => c.queryBatch(n, b)],
  ['POST', /^\/collections\/([^/]+)\/points\/query\/groups$/, (c, [n], b) => c.queryGroups(n, b)],
  ['POST', /^\/collections\/([^/]+)\/points\/search$/, (c, [n], b) => c.search(n, b)],
  ['POST', /^\/collections\/([^/]+)\/points\/search\/batch$/, (c, [n], b) => c.searchBatch(n, b)],
  ['POST', /^\/collections\/([^/]+)\/points\/search\/groups$/, (c, [n], b) => c.searchPointGroups(n, b)],
  ['POST', /^\/collections\/([^/]+)\/points\/recommend$/, (c, [n], b) => c.recommend(n, b)],
  ['POST', /^\/collections\/([^/]+)\/points\/recommend\/batch$/, (c, [n], b) => c.recommendBatch(n, b)],
  ['POST', /^\/collections\/([^/]+)\/points\/recommend\/groups$/, (c, [n], b) => c.recommendPointGroups(n, b)],
  ['POST', /^\/collections\/([^/]+)\/points\/discover$/, (c, [n], b) => c.discoverPoints(n, b)],
  ['POST', /^\/collections\/([^/]+)\/points\/discover\/batch$/, (c, [n], b) => c.discoverBatchPoints(n, b)],
  ['POST', /^\/collections\/([^/]+)\/points\/search\/matrix\/pairs$/, (c, [n], b) => c.searchMatrixPairs(n, b)],
  ['POST', /^\/collections\/([^/]+)\/points\/search\/matrix\/offsets$/, (c, [n], b) => c.searchMatrixOffsets(n, b)],
];

async function rest(url, apiKey) {
  const { QdrantClient } = require('@qdrant/js-client-rest');
  const c = new QdrantClient({ url, apiKey, timeout: 60000 });
  for (const { step: name, method, path: raw, query, body } of requests) {
    const route = routes.find(([m, pattern]) => m === method && pattern.test(raw));
    if (!route) continue;
    // Version 1.19 has no methods for search, recommend and discover; a client without the method has nothing to send.
    const [, methodName] = /\bc\.(\w+)\(/.exec(String(route[2]));
    if (typeof c[methodName] !== 'function') continue;
    const names = route[1].exec(raw).slice(1).map(decodeURIComponent);
    await step(name, () => route[2](c, names, { ...body, ...query }));
  }
  await c.createCollection('js', { vectors: { size: 4, distance: 'Dot' } });
  await c.upsert('js', { wait: true, points: [1, 2, 3, 4, 5].map((id) => ({ id, vector: vector.map((x) => x * id), payload: { id } })) });
  const snapshot = await step('js: create a snapshot', () => c.createSnapshot('js'));
  await step('js: list snapshots', () => c.listSnapshots('js'));
  await step('js: delete the snapshot', () => c.deleteSnapshot('js', snapshot.name));
  await step('js: delete it again', () => c.deleteSnapshot('js', 'nobody.snapshot'));
  await step('js: list full snapshots', () => c.listFullSnapshots());
  await step('js: shard snapshots', () => c.listShardSnapshots('js', 0));
  await step('js: shard keys', () => c.listShardKeys('js'));
  await step('js: recover from nowhere', () => c.recoverSnapshot('js', { location: 'file:///nowhere' }));
  await step('js: many at once', () => Promise.all(Array.from({ length: 50 }, (_, i) => c.query('js', { query: vector, limit: 1 + (i % 5) }))));
  await step('js: writes at once', () => Promise.all(Array.from({ length: 20 }, (_, i) => c.upsert('js', { wait: true, points: [{ id: 100 + i, vector }] }).then((r) => r.status))));
  await step('js: mistakes at once', () => Promise.allSettled(Array.from({ length: 20 }, () => c.query('js', { query: [1] }))).then((all) => all.map((r) => r.reason.status)));
  await step('js: count', () => c.count('js'));
  await step('js: no time', () => new QdrantClient({ url, apiKey, timeout: 0.001, checkCompatibility: false }).getCollections().then(() => 'answered', () => 'given up').then(() => 'over'));
  await step('js: wrong key', () => new QdrantClient({ url, apiKey: 'wrong', checkCompatibility: false }).getCollections());
  await step('js: headers of its own', () => new QdrantClient({ url, apiKey, checkCompatibility: false, headers: { 'x-of-mine': 'ü'.normalize('NFKD').slice(0, 1) } }).count('js'));
}

async function grpc(url, apiKey) {
  const { QdrantClient } = require('@qdrant/js-client-grpc');
  const { fromJson, toJson } = require('@bufbuild/protobuf');
  const generated = path.join(path.dirname(require.resolve('@qdrant/js-client-grpc')), 'proto');
  const services = {
    Points: ['points', require(path.join(generated, 'points_service_pb.js')).Points],
    Collections: ['collections', require(path.join(generated, 'collections_service_pb.js')).Collections],
    Snapshots: ['snapshots', require(path.join(generated, 'snapshots_service_pb.js')).Snapshots],
    Qdrant: ['service', require(path.join(generated, 'qdrant_pb.js')).Qdrant],
  };
  const c = new QdrantClient({ url, apiKey });
  const points = c.api('points');
  for (const { step: name, service, method, request } of requests) {
    const [api, description] = services[service] ?? [];
    const called = description?.methods.find((m) => m.name === method);
    if (!called) continue;
    const message = fromJson(called.input, request);
    await step(name, async () => toJson(called.output, await c.api(api)[called.localName](message)));
  }
  await c.api('collections').create({ collectionName: 'js', vectorsConfig: { config: { case: 'params', value: { size: 4n, distance: 3 } } } });
  await step('js: upsert', () => points.upsert({ collectionName: 'js', wait: true, points: [1n, 2n, 3n, 2n ** 64n - 1n].map((num) => ({ id: { pointIdOptions: { case: 'num', value: num } }, vectors: { vectorsOptions: { case: 'vector', value: { data: vector } } }, payload: { big: { kind: { case: 'integerValue', value: 2n ** 63n - 1n } } } })) }).then((r) => ({ ...r, time: 0, $typeName: '' })));
  const plain = (r) => r.result.map((p) => [p.id.pointIdOptions.value, p.score, p.payload.big?.kind.value]).sort((a, b) => (a[0] < b[0] ? -1 : 1));
  await step('js: search', () => points.search({ collectionName: 'js', vector, limit: 9n, withPayload: { selectorOptions: { case: 'enable', value: true } } }).then(plain));
  await step('js: many at once', () => Promise.all(Array.from({ length: 50 }, () => points.search({ collectionName: 'js', vector, limit: 9n }).then(plain))));
  await step('js: mistakes at once', () => Promise.allSettled(Array.from({ length: 20 }, () => points.search({ collectionName: 'js', vector: [1], limit: 1n }))).then((all) => all.map((r) => [r.reason.code, r.reason.rawMessage])));
  const gone = new AbortController();
  const late = Array.from({ length: 20 }, () => points.count({ collectionName: 'js' }, { signal: gone.signal }));
  gone.abort();
  await step('js: cancelled', () => Promise.allSettled(late).then((all) => all.map((r) => r.status === 'fulfilled' || r.reason.code === 1)));
  await step('js: after that', () => points.count({ collectionName: 'js' }).then((r) => r.result.count));
  await step('js: deadline far', () => points.count({ collectionName: 'js' }, { timeoutMs: 20000 }).then((r) => r.result.count));
  await step('js: without compression', () => new QdrantClient({ url, apiKey, compression: false, checkCompatibility: false }).api('points').count({ collectionName: 'js' }).then((r) => r.result.count));
  await step('js: wrong key', () => new QdrantClient({ url, apiKey: 'wrong', checkCompatibility: false }).api('collections').list({}));
  await step('js: headers', async () => {
    const seen = {};
    await points.count({ collectionName: 'nobody' }, { onHeader: silent }).catch((e) => Object.assign(seen, { code: e.code, metadata: [...e.metadata.keys()].filter((k) => k !== 'date').sort() }));
    return seen;
  });
  await step('js: snapshots', () => c.api('snapshots').list({ collectionName: 'js' }).then((r) => r.snapshotDescriptions.length));
}

(option('rest') ? rest(option('rest'), option('key')) : grpc(option('grpc'), option('key'))).then(
  () => process.exit(0),
  (error) => {
    console.error(error);
    process.exit(1);
  },
);
