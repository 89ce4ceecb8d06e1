package key

import (
	"crypto/sha256"
	"encoding/base32"
	"encoding/hex"
	"strings"

	"github.com/go-json-experiment/json/jsontext"
)

const (
	// scheme is part of every hash. Whoever changes what is hashed must change
	// it too, and knows then that every effect gets a new id: what was done
	// under the old one would be done again.
	scheme = "fencedrun/1"

	idempotencyPrefix = "fr1_"

	// 200 bits: far beyond any accident, and short enough for the idempotency
	// keys of providers that take 64 (Adyen) or 45 (Square) characters.
	idBytes = 25
	idLen   = idBytes * 8 / 5

	idDigits = "0123456789abcdefghijklmnopqrstuv"
)

var idEncoding = base32.NewEncoding(idDigits).WithPadding(base32.NoPadding)

// EffectID returns the id of an effect: 40 characters of 0-9 and a-v, a hash of
// namespace, conversation, intent and key. The package comment tells how other
// languages compute it.
//
// The names must be ones that [ValidateName] accepts (the namespace may be
// empty), and the key one without an error. EffectID panics on names that are
// not valid UTF-8 and on a key with an error, because the effects behind them
// cannot be told apart: one of them done would pass for all of them.
func EffectID(namespace, conversation, intent string, k Key) string {
	var onStack [512]byte
	sum := sha256.Sum256(appendEffect(onStack[:0], namespace, conversation, intent, k))
	var id [idLen]byte
	idEncoding.Encode(id[:], sum[:idBytes])
	return string(id[:])
}

// appendEffect appends what is hashed: the RFC 8785 form of
// [scheme, namespace, conversation, intent, key].
func appendEffect(dst []byte, namespace, conversation, intent string, k Key) []byte {
	if err := k.Err(); err != nil {
		panic("fencedrun: EffectID of a bad key: " + err.Error())
	}
	dst = append(dst, `["`+scheme+`",`...)
	dst = append(mustQuote(dst, "namespace", namespace), ',')
	dst = append(mustQuote(dst, "conversation", conversation), ',')
	dst = append(mustQuote(dst, "intent", intent), ',')
	dst = append(dst, k.canonical...)
	return append(dst, ']')
}

func mustQuote(dst []byte, field, s string) []byte {
	dst, err := jsontext.AppendQuote(dst, s)
	if err != nil {
		panic("fencedrun: EffectID: " + field + " is not valid UTF-8")
	}
	return dst
}

// IdempotencyKey returns the idempotency key to hand to providers for the effect
// with that id: "fr1_" and the id, 44 printable ASCII characters. It is the
// same for every call, delivery, worker and ledger of one effect (rule S6.4),
// and never shared by two intents or two namespaces.
func IdempotencyKey(effectID string) string {
	return idempotencyPrefix + effectID
}

// EffectOf returns the id of the effect that an idempotency key belongs to, and
// false for anything that [IdempotencyKey] did not make of an [EffectID].
func EffectOf(idempotencyKey string) (effectID string, ok bool) {
	id, ok := strings.CutPrefix(idempotencyKey, idempotencyPrefix)
	if !ok || len(id) != idLen || strings.Trim(id, idDigits) != "" {
		return "", false
	}
	return id, true
}

// Fingerprint returns the SHA-256 of canonical JSON as 64 lower-case hex
// digits. It hashes the bytes as they are: pass what [Canonicalize] or
// [CanonicalValue] returned. It carries no version, so any tool that has RFC
// 8785 and SHA-256 agrees with it.
func Fingerprint(canonical []byte) string {
	sum := sha256.Sum256(canonical)
	return hex.EncodeToString(sum[:])
}
