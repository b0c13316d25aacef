import assert from "node:assert/strict";
import { test } from "node:test";
import { parse, stringify } from "stockade";

test("integers are exact", () => {
  for (const text of ["0", "-1", "9007199254740991", "-9007199254740991", "9007199254740992", "9007199254740993", "1795227712846294479", "9223372036854775807", "-9223372036854775808", "18446744073709551615"]) {
    assert.equal(stringify(parse(text)), text);
    assert.equal(stringify(parse(`{"a":[${text}]}`)), `{"a":[${text}]}`);
  }
  assert.notEqual(String(JSON.parse("9007199254740993")), "9007199254740993", "what JSON.parse does with it");
  assert.equal(typeof parse("9007199254740991"), "number");
  assert.equal(typeof parse("9007199254740992"), "bigint");
  for (const n of [2 ** 53, NaN, Infinity, -(2 ** 60)]) assert.throws(() => stringify({ n }), TypeError);
  assert.throws(() => stringify({ f() {} }), TypeError);
});

test("everything else is as JSON.parse has it", () => {
  let seed = 1;
  const random = (n: number) => (seed = (seed * 48271) % 2147483647) % n;
  const some = (depth: number): unknown => {
    switch (random(depth > 4 ? 6 : 8)) {
      case 0: return null;
      case 1: return random(2) === 0;
      case 2: return random(1 << 30) - (1 << 29);
      case 3: return random(1000) / 7 - 50;
      case 4: return random(1000) * 1e-30;
      case 5: return Array.from({ length: random(12) }, () => String.fromCodePoint([34, 92, 47, 8, 10, 0, 65, 0xe4, 0x20ac, 0x1f600, 0x2028][random(11)]!)).join("");
      case 6: return Array.from({ length: random(5) }, () => some(depth + 1));
      default: return Object.fromEntries(Array.from({ length: random(5) }, (_, i) => [["a", "__proto__x", "", "b\\", '"'][random(5)]! + i, some(depth + 1)]));
    }
  };
  for (let i = 0; i < 3000; i++) {
    const value = some(0);
    for (const text of [JSON.stringify(value), JSON.stringify(value, undefined, 2)]) {
      assert.deepEqual(parse(text), JSON.parse(text));
      assert.equal(stringify(parse(text)), JSON.stringify(value));
    }
  }
});

test("what is no document is refused, as JSON.parse does", () => {
  for (const text of ["", " ", "{", "[1,]", "{\"a\":1,}", "{a:1}", "01", "+1", "1.", ".5", "1e", "- 1", "nul", "truex", "\"", "\"\\\"", "\"\\x\"", "\"\u0001\"", "[1 2]", "{\"a\" 1}", "1 1", "\u00a01", "[", "{\"a\":}", "NaN", "undefined"]) {
    assert.throws(() => JSON.parse(text), SyntaxError, text);
    assert.throws(() => parse(text), SyntaxError, text);
  }
  assert.throws(() => parse("[".repeat(100_000)), SyntaxError);
});

test("a member of any name is only a member", () => {
  const document = parse('{"__proto__":{"polluted":1},"constructor":2}') as Record<string, unknown>;
  assert.equal(Object.getPrototypeOf(document), Object.prototype);
  assert.equal((document as { polluted?: number }).polluted, undefined);
  assert.equal(stringify(document), '{"__proto__":{"polluted":1},"constructor":2}');
});

test("bytes are base64, and nothing that is undefined is said", () => {
  assert.equal(stringify({ a: new Uint8Array([1, 2, 255]).subarray(1), b: undefined }), '{"a":"Av8="}');
});
