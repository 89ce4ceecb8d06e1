// Package key names effects: it turns what the caller says about an effect
// into bytes that are the same in every process, on every ledger and in every
// language, and hashes them.
//
// A [Key] says which business object an effect is about: a message id
// ([ID]), an order and a line ([New]). Together with namespace, conversation
// and intent it is the identity of the effect (rule S1), so a key must hold
// nothing that changes between two tries: no wording of a model, no tool-call
// id, no retry number, no time. "0.1" and "0.10" are two keys, and so two
// effects; amounts belong into the params, whose [Fingerprint] is compared
// (rule S5.1) but names nothing.
//
// # The same ids from another language
//
// Everything rests on RFC 8785 (JSON Canonicalization Scheme), for which most
// languages have a library. An effect's id is computed in four steps:
//
//  1. The key is a JSON string (ID) or a JSON object of strings, integers and
//     booleans (New).
//  2. Put it into the array ["fencedrun/1", namespace, conversation, intent,
//     key] and serialize that by RFC 8785, as UTF-8. The namespace is "" when
//     none is configured. Strings are taken as they are: no trimming, no
//     folding of case, no Unicode normalization.
//  3. Take the SHA-256 of those bytes.
//  4. Read its first 25 bytes as one unsigned big-endian number and write it in
//     base 32 with the digits 0-9a-v, padded on the left with zeros to 40
//     digits. (RFC 4648 calls that "base32hex", here in lower case.)
//
// The idempotency key handed to providers is "fr1_" and the effect's id. For
// example, the effect "reply" to message m1 in conversation "thread-7", without
// a namespace:
//
//	["fencedrun/1","","thread-7","reply","m1"]
//	fjjf5achc7h2bifo52g0jp2rlo3jjp0882ep06a8
//	fr1_fjjf5achc7h2bifo52g0jp2rlo3jjp0882ep06a8
//
// In JavaScript, with h the hash in hex, step 4 reads
// BigInt("0x" + h.slice(0, 50)).toString(32).padStart(40, "0"); in Python 3.10
// and later, base64.b32hexencode(h[:25]).decode().lower() with h as bytes.
//
// A fingerprint is simpler: the SHA-256 of the RFC 8785 form alone, in
// lower-case hex, without a version.
//
// What is hashed, and how, never changes under one scheme version: a changed id
// is a repeated effect. The files in testdata freeze it.
package key
