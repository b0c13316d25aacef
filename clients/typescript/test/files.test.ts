/** Files that come in parts. The supervisor is a fake, whose answers have room for four bytes. */
import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { FileError } from "stockade";
import { done, fake, type Answer, type Asked } from "./fake.js";

/** The tool that reads, of one file: no answer has more than four bytes, and none begins or ends in a character. */
function reader(file: () => { content: string; mtime_ns: number }): (asked: Asked, answer: Answer) => void {
  return ({ body: { encoding, offset_bytes = 0, max_bytes = Infinity, start_line, max_lines = 0 } }, answer) => {
    const { content, mtime_ns } = file();
    const bytes = Buffer.from(content);
    let from = offset_bytes;
    for (let line = 1; line < start_line; line++) from = bytes.indexOf(10, from) + 1;
    let to = Math.min(from + Math.min(max_bytes, 4), bytes.length);
    for (let line = 0, at = from; line < max_lines && (at = bytes.indexOf(10, at) + 1) > 0; line++) if (line === max_lines - 1) to = Math.min(to, at);
    const wanted = to;
    while (encoding === "utf8" && to < bytes.length && (bytes[to]! & 0xc0) === 0x80) to--;
    const text = encoding === "utf8" && to > from;
    if (to === from) to = wanted; // less than a character was asked for
    const part = bytes.subarray(from, to);
    const read = {
      status: "ok",
      ...(part.length > 0 && { content: text ? { inline_text: { text: part.toString() } } : { inline_bytes: { bytes: part.toString("base64") } } }),
      ...(to < bytes.length && { truncated: true, next_offset_bytes: to }),
      size_bytes: bytes.length,
      mtime_ns,
    };
    answer.send(200, done("host.fs.read_file", { payload: { file: { read } } }));
  };
}

describe("a file that no answer has room for", () => {
  const content = "\ufeffone\ntwö\nthree €\n\nend";
  const bytes = Buffer.from(content);

  test("is read in parts", async (t) => {
    const f = await fake(t, reader(() => ({ content, mtime_ns: 1 })));
    const { files } = f.client().session("s-1");
    assert.deepEqual(Buffer.from(await files.read("file")), bytes);
    assert.equal(await files.readText("file"), content);
    for (const offset_bytes of [0, 3, 7]) {
      for (const max_bytes of [0, 1, 4, 5, 9, 100]) {
        assert.deepEqual(Buffer.from(await files.read("file", { offset_bytes, max_bytes })), bytes.subarray(offset_bytes, offset_bytes + max_bytes), `${offset_bytes} ${max_bytes}`);
      }
    }
    for (let most = 0; most <= bytes.length; most++) {
      const whole = new TextDecoder("utf-8", { ignoreBOM: true }).decode(bytes.subarray(0, most), { stream: true });
      assert.equal(await files.readText("file", { max_bytes: most }), whole, `of ${most} bytes, those that are whole characters`);
    }
    const lines = content.split(/(?<=\n)/);
    for (const start_line of [1, 2, 3, 5]) {
      for (const max_lines of [0, 1, 2, 3, 9]) {
        const want = lines.slice(start_line - 1, max_lines === 0 ? undefined : start_line - 1 + max_lines).join("");
        assert.equal(await files.readText("file", { start_line, max_lines }), want, `${max_lines} lines from ${start_line}`);
      }
    }
    f.asked.length = 0;
    await files.read("file", { key: "mine" });
    assert.deepEqual(f.asked.slice(0, 3).map((asked) => asked.key), ["mine", "mine+4", "mine+8"], "no key is of two requests");
  });

  test("is not put together of two", async (t) => {
    let reads = 0;
    const f = await fake(t, reader(() => ({ content, mtime_ns: reads++ < 2 ? 1 : 2 })));
    await assert.rejects(f.client().session("s-1").files.readText("file"), (e: FileError) => e instanceof FileError && e.status === "conflict" && e.code === "changed_meanwhile");
    let size = 0;
    const g = await fake(t, reader(() => ({ content: content + "x".repeat(size++), mtime_ns: 1 })));
    await assert.rejects(g.client().session("s-1").files.read("file"), (e: FileError) => e instanceof FileError && e.code === "changed_meanwhile");
  });
});
