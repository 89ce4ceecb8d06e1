// Computes the id and the idempotency key of an effect: node key.mjs CONVERSATION INTENT KEY [NAMESPACE]
// KEY is JSON: a string, or an object of strings, integers and booleans. Integers beyond 2^53 are given to
// effectID as BigInt; the command line refuses them.

import { createHash } from "node:crypto";
import { pathToFileURL } from "node:url";

// canonical writes strings, integers, booleans, arrays and objects in the form of RFC 8785. For
// these JSON.stringify is canonical but for the order of an object's names, which RFC 8785 sorts
// by UTF-16 code units, as Array.prototype.sort does.
export function canonical(value) {
  if (Array.isArray(value)) return `[${value.map(canonical).join(",")}]`;
  if (value !== null && typeof value === "object") {
    const members = Object.keys(value).sort().map((name) => `${JSON.stringify(name)}:${canonical(value[name])}`);
    return `{${members.join(",")}}`;
  }
  if (typeof value === "bigint") return value.toString();
  if (typeof value === "number" && !Number.isSafeInteger(value)) throw new Error(`not an exact integer: ${value}`);
  return JSON.stringify(value);
}

export function effectID(conversation, intent, key, namespace = "") {
  const text = canonical(["fencedrun/1", namespace, conversation, intent, key]);
  const hash = createHash("sha256").update(text, "utf8").digest("hex");
  return BigInt("0x" + hash.slice(0, 50)).toString(32).padStart(40, "0");
}

if (process.argv[1] && import.meta.url === pathToFileURL(process.argv[1]).href) {
  const [conversation, intent, key, namespace] = process.argv.slice(2);
  if (key === undefined) {
    console.error("usage: node key.mjs CONVERSATION INTENT KEY [NAMESPACE]");
    process.exit(2);
  }
  const id = effectID(conversation, intent, JSON.parse(key), namespace);
  console.log(id);
  console.log("fr1_" + id);
}
