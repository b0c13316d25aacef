// A client that is not ours: @grpc/grpc-js, generated from session.proto, which lies outside of our tree, by @grpc/proto-loader; and
// once more from nothing but what server reflection tells. It writes one line for each thing that it has seen to be so; what is
// not so ends it with an error.
//
// usage: node client.mjs SOCKET PROTO [SESSION TOKEN CURSOR]: with a session it goes on where an earlier run was
import assert from 'node:assert/strict';
import { promisify } from 'node:util';
import grpc from '@grpc/grpc-js';
import loader from '@grpc/proto-loader';

const [socket, proto, session, place, cursor] = process.argv.slice(2);
const seen = (...what) => console.log(...what);
const options = { keepCase: true, longs: Number, enums: String, defaults: true, oneofs: true };

// generate makes a client of a definition: every procedure returns a promise, but those that stream.
function generate(definition) {
  const { SessionService } = grpc.loadPackageDefinition(definition).stockade.shell.v1;
  const client = new SessionService(`unix:${socket}`, grpc.credentials.createInsecure());
  const call = {};
  for (const [name, m] of Object.entries(SessionService.service)) {
    call[name] = m.responseStream ? client[name].bind(client) : promisify(client[name].bind(client));
  }
  return { ...call, close: () => client.close() };
}

const s = generate(loader.loadSync(proto, options));

// read takes output from a token on until enough says so: all of it, and the token behind it.
async function read(id, token, enough) {
  let out = '';
  const ended = {};
  for (const end = Date.now() + 20000; ;) {
    assert(Date.now() < end, `it goes on: ${out}`);
    const o = await s.ReadOutput({ session_id: id, since: { value: token }, wait_timeout_ms: 1000, max_bytes: 4096 });
    for (const c of o.chunks) {
      out += c.payload.toString();
      if (c._exit_code === 'exit_code') ended[c.command_id] = c.exit_code;
    }
    token = o.token.value;
    if (enough(out, ended, o.state)) return { out, ended, token };
  }
}

// type sends a line and waits for the end of its command.
async function type(id, token, line) {
  const r = await s.SendInput({ session_id: id, data: Buffer.from(line + '\n') });
  assert(r.accepted && r.command_id, JSON.stringify(r));
  const got = await read(id, token, (_, ended, state) => r.command_id in ended && state === 'IDLE');
  return { ...got, code: got.ended[r.command_id] };
}

// follow collects events after a cursor until the stream ends.
function follow(id, after) {
  const events = [];
  const stream = s.SubscribeSessionEvents({ session_id: id, after });
  stream.on('data', (e) => events.push(e));
  const ended = new Promise((resolve, reject) => stream.on('end', () => resolve(events)).on('error', reject));
  return { stream, events, ended };
}

if (session) { // after a restart of the supervisor: ids, tokens and cursors are what they were
  const got = await s.GetSession({ session_id: session });
  assert(['IDLE', 'RUNNING'].includes(got.state) && got.metadata.agent_id === 'outsider', JSON.stringify(got));
  const r = await type(session, place, 'echo again $KEPT');
  assert.match(r.out, /again yes/);
  const events = follow(session, cursor);
  const closed = await s.CloseSession({ session_id: session });
  assert.equal(closed.final_state, 'CLOSED');
  const all = await events.ended;
  assert(all.length > 0 && all.at(-1).type === 'SESSION_CLOSED' && all.every((e) => Number(e.cursor) > Number(cursor)), JSON.stringify(all));
  seen('went on', closed.summary);
  s.close();
  process.exit(0);
}

// The session.
const created = await s.CreateSession({ agent_id: 'outsider', argv: ['/bin/bash', '--norc', '-i'], environment: { PS1: '$ ', KEPT: 'yes' }, policy: { max_lifetime_seconds: 600 } });
const id = created.session_id;
assert.equal(created.prompt, '$ ');
assert.equal(created.state, 'IDLE');
assert(created.metadata.policy.max_lifetime_seconds <= 600 && created.metadata.policy.max_lifetime_seconds > 0);
seen('created', id);
const watch = follow(id, '');

// Commands, with their exit codes; what the shell was told stays.
let r = await type(id, created.token.value, 'cd /tmp; N=6; (exit 3)');
assert.equal(r.code, 3);
const first = r.token;
r = await type(id, r.token, 'echo $PWD $((N * 7))');
assert.equal(r.code, 0);
assert.match(r.out, /\/tmp 42/);
assert.equal((await read(id, first, () => true)).out, r.out); // the same place has the same output
seen('commands');

// Raw keys, actions in order, and a size.
r = await type(id, r.token, "printf '\\377\\200' | od -An -tx1");
assert.match(r.out, /ff 80/);
let sent = await s.SendInput({ session_id: id, data: Buffer.from('sleep 100\n') });
for (const end = Date.now() + 10000; (await s.GetSession({ session_id: id })).command?.command_id !== sent.command_id;) assert(Date.now() < end, 'it does not run');
assert.equal((await s.GetSession({ session_id: id })).state, 'BUSY');
await s.SendInput({ session_id: id, actions: [{ type: 'RESIZE', cols: 132, rows: 50 }, { type: 'CTRL_C' }] });
r = await read(id, r.token, (_, ended, state) => sent.command_id in ended && state === 'IDLE');
assert.equal(r.ended[sent.command_id], 130);
r = await type(id, r.token, 'stty size');
assert.match(r.out, /50 132/);
seen('keys');

// Once per input_id.
const once = { session_id: id, data: Buffer.from('echo once\n'), input_id: 'i-1' };
sent = await s.SendInput(once);
r = await read(id, r.token, (_, ended, state) => sent.command_id in ended && state === 'IDLE');
assert((await s.SendInput(once)).duplicate);
seen('once');

// What is refused has a code of gRPC, and ours in its details.
const refused = async (what, code, reason) => {
  await assert.rejects(what, (e) => {
    assert.equal(e.code, code, e.message);
    const details = e.metadata.get('grpc-status-details-bin')[0].toString('latin1');
    assert(details.includes(reason) && details.includes('google.rpc.ErrorInfo'), details);
    return true;
  });
};
await refused(s.GetSession({ session_id: 'x-nobody' }), grpc.status.NOT_FOUND, 'exec_not_found');
await refused(s.GetSession({ session_id: id.split('@')[0] }), grpc.status.NOT_FOUND, 'exec_not_found');
await refused(s.ReadOutput({ session_id: id, since: { value: 'nobody~0' } }), grpc.status.INVALID_ARGUMENT, 'invalid_token');
await refused(s.CreateSession({ agent_id: 'outsider', profile: 'nobodys' }), grpc.status.PERMISSION_DENIED, 'profile_not_allowed');
seen('refused');

// What policy denies in the session is an event of it.
await refused(s.CreateSession({ agent_id: 'outsider', host_session_id: created.metadata.host_session_id, argv: Array(5000).fill('true') }), grpc.status.PERMISSION_DENIED, 'argv_limit_exceeded');
for (const end = Date.now() + 10000; watch.events.length === 0; await new Promise((then) => setTimeout(then, 10))) assert(Date.now() < end, 'no event');
const violation = watch.events[0];
assert.equal(violation.type, 'POLICY_VIOLATION');
assert.equal(violation.reason, 'argv_limit_exceeded');
watch.stream.cancel();
await assert.rejects(watch.ended, (e) => e.code === grpc.status.CANCELLED);
seen('event', violation.receipt_id);

// A client from nothing but reflection.
const message = (fields) => ({ fields: Object.fromEntries(Object.entries(fields).map(([name, [type, number, rule]]) => [name, rule ? { type, id: number, rule } : { type, id: number }])) });
const mirror = grpc.loadPackageDefinition(loader.fromJSON({
  nested: { grpc: { nested: { reflection: { nested: { v1: { nested: {
    Ask: message({ file_containing_symbol: ['string', 4], list_services: ['string', 7] }),
    Files: message({ file_descriptor_proto: ['bytes', 1, 'repeated'] }),
    Service: message({ name: ['string', 1] }),
    Services: message({ service: ['Service', 1, 'repeated'] }),
    Answer: message({ file_descriptor_response: ['Files', 4], list_services_response: ['Services', 6] }),
    ServerReflection: { methods: { ServerReflectionInfo: { requestType: 'Ask', requestStream: true, responseType: 'Answer', responseStream: true } } },
  } } } } } } },
}, { keepCase: true })).grpc.reflection.v1.ServerReflection;
const reflection = new mirror(`unix:${socket}`, grpc.credentials.createInsecure());
const conversation = reflection.ServerReflectionInfo();
const ask = (question) => new Promise((resolve, reject) => { conversation.once('data', resolve).once('error', reject); conversation.write(question); });
const services = (await ask({ list_services: '*' })).list_services_response.service.map((x) => x.name);
assert(services.includes('stockade.shell.v1.SessionService'), JSON.stringify(services));
const files = (await ask({ file_containing_symbol: services.find((n) => n.includes('SessionService')) })).file_descriptor_response.file_descriptor_proto;
conversation.end();
// A FileDescriptorSet: each file as field 1.
const length = (n) => (n < 128 ? [n] : [(n & 127) | 128, ...length(n >> 7)]);
const set = Buffer.concat(files.flatMap((f) => [Buffer.from([10, ...length(f.length)]), f]));
const found = generate(loader.loadFileDescriptorSetFromBuffer(set, options));
assert.equal((await found.GetSession({ session_id: id })).state, 'IDLE');
seen('reflected', files.length);

seen('place', id, r.token, violation.cursor);
for (const c of [found, reflection, s]) c.close();
