/** Between documents as JSON has them and as the types say: nanoseconds are bigints, bytes are bytes. */
import { fromBase64 } from "./json.js";
import { shapes } from "./schema.js";

/** Brings a document of a schema into its types, in place, and returns it. What the schema does not name stays as it is. */
export function shape(name: string, document: unknown): unknown {
  const members = shapes[name];
  if (members === undefined || typeof document !== "object" || document === null) return document;
  const object = document as Record<string, unknown>;
  for (const member in members) {
    if (Object.hasOwn(object, member)) object[member] = convert(members[member]!, object[member]);
  }
  return document;
}

function convert(kind: string, value: unknown): unknown {
  if (kind.startsWith("[]")) {
    return Array.isArray(value) ? value.map((element) => convert(kind.slice(2), element)) : value;
  }
  if (kind.startsWith("{}")) {
    if (typeof value !== "object" || value === null) return value;
    for (const [name, member] of Object.entries(value)) (value as Record<string, unknown>)[name] = convert(kind.slice(2), member);
    return value;
  }
  switch (kind) {
    case "ns":
      return Number.isSafeInteger(value) ? BigInt(value as number) : value;
    case "bytes":
      return typeof value === "string" ? fromBase64(value) : value;
  }
  return shape(kind, value);
}
