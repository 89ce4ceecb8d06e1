package runs

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"
	"unicode/utf8"

	"github.com/fencedrun/fencedrun/ledger/key"
)

// maxError bounds what is kept of an effect's error: some carry a whole response.
const maxError = 2 << 10

// clean makes text for people valid UTF-8, so that every ledger keeps the same.
func clean(text string) string { return strings.ToValidUTF8(text, "\uFFFD") }

// errorText is what the ledger keeps of an error.
func errorText(err error) string {
	text := clean(err.Error())
	if len(text) <= maxError {
		return text
	}
	cut := maxError
	for !utf8.RuneStart(text[cut]) {
		cut--
	}
	return text[:cut] + "…"
}

// referenceOf is the provider's reference as the ledger keeps it. It comes from outside and
// must not make a settle fail, so one that is too long is kept as its beginning and its hash: a
// report that carries it is still recognised.
func referenceOf(reference string) string {
	reference = clean(reference)
	if len(reference) <= key.MaxJobID {
		return reference
	}
	sum := sha256.Sum256([]byte(reference))
	digest := "#" + hex.EncodeToString(sum[:])
	cut := key.MaxJobID - len(digest)
	for !utf8.RuneStart(reference[cut]) {
		cut--
	}
	return reference[:cut] + digest
}
