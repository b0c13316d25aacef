/**
 * JSON without loss: an integer that a number cannot hold is a bigint, in both directions.
 *
 * `JSON.parse` rounds what lies beyond 2^53, and the texts of numbers reach its reviver only from Node 21 on. Times in
 * nanoseconds lie beyond. So documents are read here.
 */

/** Anything that JSON can say. Integers beyond 2^53 are bigints; bytes are written as base64. */
export type Json = null | boolean | number | bigint | string | Uint8Array | readonly Json[] | { readonly [name: string]: Json | undefined };

const deepest = 512;
const space = /[ \t\n\r]*/y;
const number = /-?(?:0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?/y;
const control = /[\u0000-\u001f]/;

/** Reads one document. What is none is a SyntaxError. */
export function parse(text: string): unknown {
  let at = 0;

  const fail = (what: string): never => {
    throw new SyntaxError(`JSON: ${what} at ${at}`);
  };
  const skip = () => {
    space.lastIndex = at;
    space.test(text);
    at = space.lastIndex;
  };
  const take = (word: string, value: unknown) => {
    if (!text.startsWith(word, at)) fail("no value");
    at += word.length;
    return value;
  };

  const string = (): string => {
    const begin = at++;
    let escaped = false;
    for (;;) {
      const end = text.indexOf('"', at);
      if (end < 0) fail("a text that does not end");
      let slashes = 0;
      while (text[end - 1 - slashes] === "\\") slashes++;
      at = end + 1;
      if (slashes > 0) escaped = true;
      if (slashes % 2 === 0) break;
    }
    const inner = text.slice(begin + 1, at - 1);
    if (escaped || inner.includes("\\") || control.test(inner)) {
      return JSON.parse(text.slice(begin, at)) as string;
    }
    return inner;
  };

  const numeral = (): number | bigint => {
    number.lastIndex = at;
    const match = number.exec(text) ?? fail("no value");
    at = number.lastIndex;
    const value = Number(match[0]);
    if (match[1] === undefined && match[2] === undefined && !Number.isSafeInteger(value)) return BigInt(match[0]);
    return value;
  };

  const value = (depth: number): unknown => {
    if (depth > deepest) fail("too deep");
    skip();
    switch (text[at]) {
      case "{": {
        const object: Record<string, unknown> = {};
        at++;
        skip();
        if (text[at] === "}") return at++, object;
        for (;;) {
          skip();
          if (text[at] !== '"') fail("no name");
          const name = string();
          skip();
          if (text[at++] !== ":") fail("no colon");
          const member = value(depth + 1);
          if (name === "__proto__") {
            Object.defineProperty(object, name, { value: member, enumerable: true, configurable: true, writable: true });
          } else {
            object[name] = member;
          }
          skip();
          const next = text[at++];
          if (next === "}") return object;
          if (next !== ",") fail("no comma");
        }
      }
      case "[": {
        const list: unknown[] = [];
        at++;
        skip();
        if (text[at] === "]") return at++, list;
        for (;;) {
          list.push(value(depth + 1));
          skip();
          const next = text[at++];
          if (next === "]") return list;
          if (next !== ",") fail("no comma");
        }
      }
      case '"':
        return string();
      case "t":
        return take("true", true);
      case "f":
        return take("false", false);
      case "n":
        return take("null", null);
      default:
        return numeral();
    }
  };

  const document = value(0);
  skip();
  if (at !== text.length) fail("something behind the document");
  return document;
}

/**
 * Writes one document. Members that are undefined are left out, bytes are base64. A number that may not be what was meant
 * (beyond 2^53, or none) is a TypeError: it would have to be a bigint.
 */
export function stringify(value: unknown): string {
  switch (typeof value) {
    case "string":
      return JSON.stringify(value);
    case "boolean":
      return value ? "true" : "false";
    case "bigint":
      return value.toString();
    case "number":
      if (!Number.isFinite(value) || (Number.isInteger(value) && !Number.isSafeInteger(value))) {
        throw new TypeError(`${value} is not exact; a bigint would be`);
      }
      return JSON.stringify(value);
    case "object": {
      if (value === null) return "null";
      if (value instanceof Uint8Array) return JSON.stringify(base64(value));
      if (Array.isArray(value)) return `[${value.map(stringify).join(",")}]`;
      const members: string[] = [];
      for (const [name, member] of Object.entries(value)) {
        if (member !== undefined) members.push(`${JSON.stringify(name)}:${stringify(member)}`);
      }
      return `{${members.join(",")}}`;
    }
    default:
      throw new TypeError(`JSON has no ${typeof value}`);
  }
}

export function base64(bytes: Uint8Array): string {
  return Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength).toString("base64");
}

/** The bytes that a text in base64 stands for, in memory of their own. */
export function fromBase64(text: string): Uint8Array {
  const pooled = Buffer.from(text, "base64");
  const bytes = new Uint8Array(pooled.length);
  bytes.set(pooled);
  return bytes;
}
