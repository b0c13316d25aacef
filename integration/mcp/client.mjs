// An agent host that is not ours: the TypeScript SDK's client drives `stockade mcp`. It writes one line for each thing that it has
// seen to be so; what is not so ends it with an error.
//
// usage: node client.mjs STOCKADE TREE
import assert from 'node:assert/strict';
import { setTimeout as sleep } from 'node:timers/promises';
import { Client } from '@modelcontextprotocol/sdk/client/index.js';
import { StdioClientTransport } from '@modelcontextprotocol/sdk/client/stdio.js';

const [stockade, tree] = process.argv.slice(2);
const seen = (what) => console.log(what);

// serve starts a server with flags and calls its tools: the text, and what is structured.
async function serve(...flags) {
  const transport = new StdioClientTransport({ command: stockade, args: ['mcp', ...flags], env: { ...process.env }, stderr: 'pipe' });
  let said = '';
  transport.stderr.on('data', (b) => { said += b; });
  const client = new Client({ name: 'integration', version: '1' });
  await client.connect(transport);
  const tools = Object.fromEntries((await client.listTools()).tools.map((t) => [t.name, t]));
  const call = async (name, args, options) => {
    // The client itself holds what is structured against the schema that the server gave.
    const r = await client.callTool({ name, arguments: args }, undefined, options);
    assert.equal(r.isError ?? false, !r.structuredContent.ok, JSON.stringify(r));
    return { text: r.content.map((c) => c.text).join(''), error: r.isError ?? false, ...r.structuredContent };
  };
  const session = async () => { while (!/session (s-[a-z2-7]{26})/.test(said)) await sleep(10); return RegExp.$1; };
  return { client, tools, call, session };
}

const edit = 'str_replace_based_edit_tool';
const host = await serve('--mount', `${tree}:/work:rw`, '--workdir', '/work');

// What is served.
for (const name of ['exec', 'process_output', 'process_input', 'process_cancel', edit, 'glob', 'grep']) assert(name in host.tools, name);
assert(host.tools.grep.annotations.readOnlyHint && !host.tools.exec.annotations.readOnlyHint && host.tools[edit].annotations.destructiveHint);
assert.equal(host.tools.exec.annotations.openWorldHint, false);
seen('tools');

// The coding flow: a test that fails, the place, the change, a file more, a test that passes.
let r = await host.call('exec', { command: 'sh test.sh' });
assert.equal(r.exit_code, 1, r.text);
assert.match(r.text, /2 \+ 2 is 0, want 4/);
r = await host.call('grep', { pattern: '- \\$2', output_mode: 'content' });
assert.match(r.text, /^add\.sh:2:/);
r = await host.call(edit, { command: 'view', path: 'add.sh' });
assert.match(r.text, /^ {5}1\t/);
r = await host.call(edit, { command: 'str_replace', path: 'add.sh', old_str: 'minus', new_str: 'plus' });
assert(r.error && r.error_code === 'edit_target_not_found', r.text);
r = await host.call(edit, { command: 'str_replace', path: 'add.sh', old_str: '$1 - $2', new_str: '$1 + $2' });
assert(!r.error, r.text);
r = await host.call(edit, { command: 'create', path: 'docs/add.md', file_text: 'add.sh adds.\n' });
assert(!r.error, r.text);
r = await host.call(edit, { command: 'insert', path: 'docs/add.md', insert_line: 0, insert_text: '# Add' });
assert(!r.error, r.text);
r = await host.call('exec', { command: 'sh test.sh && cat docs/add.md' });
assert.equal(r.exit_code, 0, r.text);
assert.equal(r.text, 'ok\n# Add\nadd.sh adds.');
seen(`flow ${r.receipts[0].intent_id}`);

// What runs on is polled, written to, and ended.
r = await host.call('exec', { command: 'echo ready; read line; echo got $line; sleep 600', stdin_open: true, wait_ms: 500 });
assert(r.running && r.exec_id && r.cursor, r.text);
const { exec_id, cursor } = r;
r = await host.call('process_input', { exec_id, text: 'word\n' });
assert(!r.error, r.text);
do r = await host.call('process_output', { exec_id, after: cursor, wait_ms: 100 }); while (!r.text.startsWith('got word'));
r = await host.call('process_cancel', { exec_id });
assert(!r.error && /canceled/.test(r.text), r.text);
seen('process');

// Progress: told while it runs, in numbers that grow, with the last line.
const told = [];
r = await host.call('exec', { command: 'for i in 1 2 3 4 5; do echo step $i; sleep 0.4; done' }, { onprogress: (p) => told.push(p) });
assert(!r.error && /step 5$/.test(r.text), r.text);
assert(told.length >= 2 && told.every((p, i) => i === 0 || p.progress > told[i - 1].progress), JSON.stringify(told));
assert(told.some((p) => /^step [2345]$/.test(p.message ?? '')), JSON.stringify(told));
seen('progress');

// A cancellation ends the command, with all that it started.
const abort = new AbortController();
const canceled = host.call('exec', { command: 'sleep 4321 & sleep 4321; echo never' }, { signal: abort.signal });
const running = async () => (await host.call('exec', { command: "cat /proc/[0-9]*/comm 2>/dev/null | grep -x sleep | wc -l" })).text;
while ((await running()) !== '2') await sleep(20);
abort.abort('the person has changed her mind');
await assert.rejects(canceled);
for (const end = Date.now() + 15000; (await running()) !== '0';) assert(Date.now() < end, 'what was canceled runs on');
seen('cancel');

// Denials: by what the mount protects, and by a grant without writing; with code, reason and what would be allowed.
r = await host.call(edit, { command: 'create', path: '.git/hooks/pre-commit', file_text: 'x' });
assert(r.error && r.error_code === 'protected_path', r.text);
assert(r.allowed.mounts.some((m) => m.startsWith('/work:rw without')), JSON.stringify(r.allowed));
const reader = await serve('--profile', 'readonly-review', '--mount', `${tree}:/work:ro`, '--workdir', '/work', '--tools', 'gemini');
r = await reader.call('read_file', { file_path: 'docs/add.md' });
assert.equal(r.text, '# Add\nadd.sh adds.\n');
r = await reader.call('write_file', { file_path: 'docs/add.md', content: 'x' });
assert(r.error && r.status === 'denied' && r.deny.length > 0, r.text);
assert.equal(r.error_code, r.deny[0].code);
assert(r.text.includes(r.error_code) && r.allowed['fs.ops'].includes('read') && !r.allowed['fs.ops'].includes('write'), r.text);
seen(`denied ${r.error_code} ${r.receipts[0].intent_id}`);

// Both have sessions of their own, which end with them.
seen(`sessions ${await host.session()} ${await reader.session()}`);
await reader.client.close();
await host.client.close();
seen('closed');
