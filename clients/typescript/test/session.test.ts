import assert from "node:assert/strict";
import { randomUUID } from "node:crypto";
import { getEventListeners } from "node:events";
import { mkdir, mkdtemp, readFile, symlink, writeFile } from "node:fs/promises";
import * as net from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, describe, test } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import { ConnectionError, Denied, Faulted, FileError, RequestError, Stockade, type Session } from "stockade";
import { Daemon, without } from "./daemon.js";
import { degraded } from "./place.js";

describe("a session", { skip: without }, () => {
  let daemon: Daemon;
  let stockade: Stockade;
  let tree: string;
  let s: Session;

  before(async () => {
    daemon = await Daemon.start();
    stockade = daemon.client();
    tree = await mkdtemp(join(daemon.directory, "tree-"));
    s = await stockade.open({ profile: "workspace", mounts: [`${tree}:/work:rw`], workdir: "/work", env: { TOKEN: { secret: "hunter2" } }, accept_degraded: degraded() });
  });
  after(async () => {
    await s.close();
    stockade.close();
    await daemon.stop();
  });

  test("runs commands", async () => {
    const r = await s.exec(["sh", "-c", "cat; echo $TOKEN $N >&2; exit 7"], { stdin: "in\n", env_patch: { N: "5" } });
    assert.deepEqual([r.ok, r.exitCode, r.status, r.stdout, r.stderr], [false, 7, "ok", "in\n", "hunter2 5\n"]);
    assert.equal((await s.exec(["true"])).ok, true);
    const late = await s.exec(["sleep", "60"], { timeout: 100 });
    assert.deepEqual([late.status, late.exitCode, late.result.error_code], ["timeout", -1, "timeout"]);
    await assert.rejects(s.exec(["/nonesuch"]), (e: Faulted) => e instanceof Faulted && e.code === "spawn_failed" && e.intent.startsWith("sha256:"));
  });

  test("keeps every byte and every integer", async () => {
    const bytes = new Uint8Array(200_000).map((_, i) => (i * 7919) >> 3);
    const r = await s.exec(["cat"], { stdin: bytes });
    assert.deepEqual(r.bytes("stdout"), bytes);
    const { started_at_ns: began, started_at: when, ended_at_ns: ended } = r.result;
    assert.equal(typeof began, "bigint");
    assert.equal(new Date(Number(began! / 1_000_000n)).toISOString().slice(0, 19), when!.slice(0, 19));
    assert.ok(ended! > began!);
    const digits = when!.match(/\.(\d+)/)?.[1]?.padEnd(9, "0") ?? "000000000";
    assert.equal(String(began).slice(-9), digits, "nanoseconds to the last digit");
  });

  test("tells why not", async () => {
    const denied = await stockade.open({ profile: "workspace", mounts: ["/etc:/work:rw"] }).then(
      () => assert.fail("it was opened"),
      (e: unknown) => e,
    );
    assert.ok(denied instanceof Denied);
    assert.equal(denied.code, "mount_host_path_not_allowed");
    assert.match(denied.object!, /\/etc/);
    assert.match(denied.rule!, /\.rego:\d+ stockade\./);
    assert.match(denied.hint, /stockade policy why sha256:/);
    assert.equal((await stockade.receipt(denied.intent)).outcome, "denied");
    await assert.rejects(stockade.call("POST /v1/exec", { body: { session_id: s.id, argv: ["true"], Argv: [] } }), (e: RequestError) => e instanceof RequestError && e.code === "unknown_member" && e.status === 400);
    await assert.rejects(new Stockade({ socket: join(tmpdir(), "nobody.sock") }).sessions(), (e: ConnectionError) => e instanceof ConnectionError && e.code === "connection_lost");
  });

  test("does once what has a key", async () => {
    const key = randomUUID();
    const one = await s.exec(["sh", "-c", "echo x >>keyed; wc -l <keyed"], { key });
    const two = await s.exec(["sh", "-c", "echo x >>keyed; wc -l <keyed"], { key });
    assert.equal(one.stdout, "1\n");
    assert.deepEqual(two.receipt, one.receipt);
    await assert.rejects(s.exec(["true"], { key }), (e: RequestError) => e.code === "idempotency_conflict");
    assert.equal(await readFile(join(tree, "keyed"), "utf8"), "x\n");
  });

  test("is written to and read while it runs", async () => {
    const x = await s.start(["sh", "-c", "while read line; do echo got $line; done; echo over >&2"], { stdin_open: true });
    const lines: string[] = [];
    await x.write("one\n");
    for await (const line of x.lines()) {
      lines.push(line);
      if (lines.length === 1) await x.write("two\n");
      if (lines.length === 2) await x.end();
    }
    assert.deepEqual(lines, ["got one", "got two"]);
    const r = await x.finished();
    assert.deepEqual([r.exitCode, r.stdout, r.stderr], [0, "got one\ngot two\n", "over\n"]);
    const kinds = new Set<string>();
    for await (const event of x) kinds.add(event.kind);
    assert.deepEqual([...kinds].sort(), ["frame", "output", "receipt"]);
    await x.end(); // it has ended long since
    await assert.rejects(x.end("more"), (e: Faulted) => e.code === "exec_ended");
  });

  test("takes what a command does not read at once", async () => {
    const x = await s.start(["sh", "-c", "sleep 0.3; wc -c"], { stdin_open: true });
    await x.end(new Uint8Array(2_500_000));
    assert.equal((await x.finished()).stdout, "2500000\n");
  });

  test("abort ends a command", async () => {
    const control = new AbortController();
    const marker = randomUUID();
    const running = s.exec(["sleep", "1000", marker.replace(/\D/g, "").slice(0, 8) || "1"], { signal: control.signal, labels: { marker } });
    const find = async () => ((await stockade.call("GET /v1/executions", { query: { label: [`marker=${marker}`] } })).document as { processes: { state: string }[] }).processes;
    while ((await find())[0]?.state !== "running") await sleep(20);
    control.abort();
    await assert.rejects(running, { name: "AbortError" });
    while ((await find())[0]?.state === "running") await sleep(20);
    assert.equal((await find())[0]?.state, "canceled");
    await assert.rejects(s.exec(["true"], { signal: AbortSignal.abort() }), { name: "AbortError" });
    const long = new AbortController();
    for (let i = 0; i < 3; i++) await s.exec(["true"], { signal: long.signal });
    assert.equal(getEventListeners(long.signal, "abort").length, 0, "what has ended listens no more");
    const following = new AbortController();
    const x = await s.start(["sleep", "1000"]);
    const reading = (async () => {
      for await (const _ of x.events({ signal: following.signal })) following.abort();
    })();
    await assert.rejects(reading, { name: "AbortError" });
    assert.equal((await x.show()).state, "running", "whoever stops reading ends nothing");
    assert.equal((await x.cancel()).status, "canceled");
  });

  test("has files", async () => {
    const f = s.files;
    await f.write("src/a.txt", "one\ntwo\n", { create_parents: true });
    assert.equal(await f.readText("src/a.txt"), "one\ntwo\n");
    await f.edit("src/a.txt", "two", "three");
    await f.patch("*** Begin Patch\n*** Add File: src/b.txt\n+four\n*** End Patch\n");
    assert.deepEqual(await f.grep("t[a-z]ree", "src"), ["src/a.txt:2:three"]);
    assert.deepEqual((await f.glob("src/*.txt")).sort(), ["src/a.txt", "src/b.txt"]);
    assert.equal((await f.list("src")).length, 2);
    assert.equal((await f.stat("src/b.txt")).size_bytes, 5);
    await f.mkdir("src/deep");
    await f.move("src/b.txt", "src/deep/c.txt");
    assert.deepEqual([await f.exists("src/b.txt"), await f.exists("src/deep/c.txt")], [false, true]);
    await f.remove("src", { recursive: true });
    await f.write("config", "retries = 3\n");
    const large = new Uint8Array(1_500_000).map((_, i) => i % 251);
    await f.write("large", large);
    assert.deepEqual(await f.read("large"), large);
    await symlink("/etc/passwd", join(tree, "away"));
    for (const [refused, status, code] of [
      [() => f.readText("nothing"), "not_found", "path_not_found"],
      [() => f.edit("config", "nine", "ten"), "not_found", "edit_target_not_found"],
      [() => f.write("large", "", { mode: "create_new" }), "conflict", "file_exists"],
    ] as const) {
      await assert.rejects(refused(), (e: FileError) => e instanceof FileError && e.status === status && e.code === code);
    }
  });

  test("leaves out nothing of a file or a directory", async () => {
    const f = s.files;
    const lines = Array.from({ length: 120_000 }, (_, i) => `line ${i} of a file that no answer has room for: \u20ac\n`);
    await writeFile(join(tree, "huge"), lines.join(""));
    assert.equal((await f.readText("huge")) === lines.join(""), true, "a file of more than 4 MiB");
    assert.equal(Buffer.from(await f.read("huge")).equals(Buffer.from(lines.join(""))), true);
    assert.equal((await f.readText("huge", { start_line: 11, max_lines: 110_000 })) === lines.slice(10, 110_010).join(""), true);
    assert.equal((await f.read("huge", { offset_bytes: 5, max_bytes: 5_000_000 })).length, 5_000_000);
    await mkdir(join(tree, "many"));
    const names = Array.from({ length: 101 }, (_, i) => `name-${String(i).padStart(3, "0")}`);
    for (const name of names) await writeFile(join(tree, "many", name), "match\n");
    const listed = await f.list("many");
    assert.deepEqual([...listed], names);
    assert.equal(listed.truncated, false);
    for (const [found, some] of [
      [listed, await f.list("many", { max_results: 3 })],
      [await f.glob("many/*"), await f.glob("many/*", undefined, { max_results: 3 })],
      [await f.grep("match", "many"), await f.grep("match", "many", { max_results: 3 })],
    ] as const) {
      assert.deepEqual([found.length, found.truncated, some.length, some.truncated], [101, false, 3, true]);
    }
  });

  test("leaves nothing behind when it is aborted", { timeout: 120_000 }, async () => {
    const label = randomUUID();
    const executions = async () => ((await stockade.call("GET /v1/executions", { query: { label: [`of=${label}`] } })).document as { processes: { state: string }[] }).processes;
    for (const make of [
      (c: Stockade, signal: AbortSignal) => c.session(s.id).start(["sleep", "1000"], { signal, labels: { of: label } }),
      (c: Stockade, signal: AbortSignal) => c.session(s.id).shell({ signal, labels: { of: label } }),
      (c: Stockade, signal: AbortSignal) => c.open({ profile: "workspace", accept_degraded: degraded(), signal }),
    ]) {
      const before = [(await executions()).length, (await stockade.sessions()).length];
      const between = await withholding(daemon.socket, join(daemon.directory, "between"));
      const client = new Stockade({ socket: join(daemon.directory, "between") });
      const control = new AbortController();
      const making = make(client, control.signal);
      await between.answered;
      control.abort();
      await assert.rejects(making, { name: "AbortError" });
      assert.notDeepEqual([(await executions()).length, (await stockade.sessions()).length], before, "it was made");
      while ((await executions()).some((x) => x.state !== "canceled")) await sleep(20);
      while ((await stockade.sessions()).some((other) => other.session_id !== s.id && other.state !== "closed")) await sleep(20);
      client.close();
      between.server.close();
    }
  });

  test("has shells", async () => {
    const shell = await s.shell();
    await shell.run("cd /tmp && N=7");
    const r = await shell.run("echo $PWD $N; false");
    assert.deepEqual([r.stdout.trim(), r.exitCode], ["/tmp 7", 1]);
    await shell.type("echo typed; exit\n");
    let text = "";
    for await (const chunk of shell) text += new TextDecoder().decode(chunk.bytes ?? new Uint8Array());
    assert.match(text, /typed/);
    assert.match((await shell.show()).status, /CLOSED/);
  });

  test("carries out the calls of models", async () => {
    assert.ok((await stockade.tools("anthropic")).some((t) => t.name === "bash"));
    await s.files.write("config", "retries = 3\n");
    const a = await s.callTool("openai", { type: "function_call", call_id: "call_1", name: "read_file", arguments: '{"file_path":"config"}' });
    assert.ok(a.ok, JSON.stringify([a.result, a.error_code, a.error_message]));
    assert.match(JSON.stringify(a.result), /retries = 3/);
    const no = await s.callTool("openai", { type: "function_call", call_id: "call_2", name: "no_such_tool", arguments: "{}" });
    assert.deepEqual([no.ok, no.error_code], [false, "unknown_tool"]);
  });

  test("tells what happens", async () => {
    let other: Session;
    {
      await using opened = await stockade.open({ profile: "workspace", accept_degraded: degraded() });
      await opened.exec(["true"]);
      other = opened;
    }
    const kinds = new Set<string>();
    for await (const notice of other.events()) kinds.add(notice.kind);
    assert.ok(kinds.has("SESSION_STATE") && kinds.has("PROCESS_STATE"), [...kinds].join());
    assert.equal((await other.show()).state, "closed");
  });

  test("outlives its supervisor", async () => {
    const x = await s.start(["sh", "-c", "i=0; while [ $i -lt 40 ]; do echo $i; i=$((i+1)); sleep 0.05; done"]);
    const waiting = s.exec(["sh", "-c", "sleep 1; echo waited >>waited; cat waited"]);
    const seen: string[] = [];
    let killed: Promise<void> | undefined;
    for await (const line of x.lines()) {
      seen.push(line);
      if (seen.length === 5) killed = daemon.kill().then(() => daemon.start());
    }
    await killed;
    assert.deepEqual(seen, Array.from({ length: 40 }, (_, i) => String(i)));
    assert.equal((await x.finished()).exitCode, 0);
    assert.equal((await waiting).stdout, "waited\n");
  });
});

/** A way to a supervisor on which the answer to the first connection is lost. `answered` is when there was one. */
async function withholding(socket: string, at: string): Promise<{ server: net.Server; answered: Promise<void> }> {
  let answer: () => void;
  const answered = new Promise<void>((told) => (answer = told));
  let first = true;
  const server = net.createServer((client) => {
    const withheld = first;
    first = false;
    const supervisor = net.connect(socket);
    client.pipe(supervisor).on("error", () => client.destroy());
    client.on("error", () => supervisor.destroy());
    if (withheld) supervisor.on("data", () => answer());
    else supervisor.pipe(client);
  });
  await new Promise<void>((listening) => server.listen(at, listening));
  return { server, answered };
}
