package key

import (
	"fmt"
	"unicode/utf8"
)

// Limits in bytes (rule S12). They are bytes of UTF-8, not characters.
const (
	MaxIntent       = 128
	MaxConversation = 512
	MaxQueue        = 512
	MaxJobID        = 512
	MaxKey          = 1024      // of Key.Canonical
	MaxParams       = 64 * 1024 // of what Canonicalize and CanonicalValue return
)

// ValidateName reports what makes value unfit to be the field named field (an
// intent, a conversation, a queue, a job id): it is empty, it is longer than
// maxBytes bytes, or it is not valid UTF-8. The error names the field, and the
// limit where that is the matter; it never shows the value, which may be a
// customer's.
//
// Names must pass here before they reach [EffectID].
func ValidateName(field, value string, maxBytes int) error {
	switch {
	case value == "":
		return fmt.Errorf("fencedrun: %s is empty", field)
	case len(value) > maxBytes:
		return fmt.Errorf("fencedrun: %s is %d bytes, over the limit of %d", field, len(value), maxBytes)
	case !utf8.ValidString(value):
		return fmt.Errorf("fencedrun: %s is not valid UTF-8", field)
	}
	return nil
}
