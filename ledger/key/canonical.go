package key

import (
	stdjson "encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// Canonicalize returns the RFC 8785 form of one JSON value: the same bytes for
// every way to write the same value. It does not change its argument.
//
// It refuses what does not mean the same to every reader: an object with a name
// twice, text that is not valid UTF-8, an escaped half of a surrogate pair, a
// number too large or too close to zero for a float64, an integer that a
// float64 does not hold, anything after the value; and more than [MaxParams]
// bytes of canonical form. The error names the place by its JSON pointer (RFC
// 6901); of a value it shows at most the one character that is wrong.
//
// An integer, that is a number written without fraction and exponent, is held
// if it is exactly the value of a float64 or the form in which RFC 8785 writes
// one. (They differ from 1<<53 on: 999999999999999900000 is how RFC 8785 writes
// the float64 999999999999999868928.) Numbers with fraction or exponent are
// rounded to the nearest float64, as JSON readers do.
func Canonicalize(text []byte) ([]byte, error) {
	b, err := canonicalize(text)
	if err != nil {
		return nil, fmt.Errorf("fencedrun: canonical JSON: %w", err)
	}
	return b, nil
}

func canonicalize(text []byte) ([]byte, error) {
	v := jsontext.Value(text).Clone()
	if err := v.Canonicalize(); err != nil {
		return nil, located(err)
	}
	// Only now, when the text is known to be JSON; and on the text as it came,
	// because the canonical form has rounded its numbers already.
	if i := badNumber(text); i >= 0 {
		return nil, badNumberError(text, i)
	}
	if len(v) > MaxParams {
		return nil, fmt.Errorf("%d bytes, over the limit of %d", len(v), MaxParams)
	}
	return v, nil
}

// CanonicalValue returns the RFC 8785 form of a Go value, which passes the same
// gate as the text of [Canonicalize].
//
// The value is encoded as encoding/json/v2 does: json tags, MarshalJSON,
// MarshalJSONTo and MarshalText are honoured, json.RawMessage is taken as JSON,
// json.Number as a number; NaN and the infinities are refused. Where v2 differs
// from encoding/json, v2 holds: a nil slice or map is [] or {}, so that it has
// the fingerprint of an empty one; omitempty leaves out what is empty in JSON,
// so it keeps 0 and false; time.Duration is refused, since no unit is said; text
// that is not valid UTF-8 is refused instead of mended. Errors name the place by
// its JSON pointer.
func CanonicalValue(v any) ([]byte, error) {
	text, err := json.Marshal(v, json.Deterministic(true), json.WithMarshalers(numbers))
	if err == nil {
		text, err = canonicalize(text)
	} else {
		err = located(err)
	}
	if err != nil {
		return nil, fmt.Errorf("fencedrun: canonical JSON: %w", err)
	}
	return text, nil
}

// numbers encodes json.Number, which the v2 encoder would take for the string
// that it is underneath: the same amount would have two fingerprints, by
// whether it was decoded or computed.
var numbers = json.MarshalToFunc(func(e *jsontext.Encoder, n stdjson.Number) error {
	within, length := e.StackIndex(e.StackDepth())
	isName := within == '{' && length%2 == 0
	if quoted, _ := json.GetOption(e.Options(), json.StringifyNumbers); isName || quoted {
		return e.WriteToken(jsontext.String(string(n)))
	}
	number := jsontext.Value(n)
	if number.Kind() != '0' || !number.IsValid() {
		return errors.New("json.Number that is not a number")
	}
	return e.WriteValue(number)
})

// located turns an error of the encoder into one that says what is wrong and
// where, without the pieces of text and the offsets that its own message shows.
func located(err error) error {
	var at jsontext.Pointer
	// Where a MarshalJSON method returned bad JSON there are two errors, each
	// with a place; the inner one is the more exact, if it lies within the outer.
	for {
		var place jsontext.Pointer
		var cause error
		switch e := err.(type) { //nolint:errorlint // unwrapped one layer at a time: each has a place of its own
		case *json.SemanticError:
			place, cause = e.JSONPointer, e.Err
			if cause == nil {
				cause = fmt.Errorf("Go type %v has no JSON form", e.GoType) //nolint:staticcheck // ST1005: Go is a name
			}
		case *jsontext.SyntacticError:
			place, cause = e.JSONPointer, e.Err
		}
		if cause == nil {
			break
		}
		if at.Contains(place) {
			at = place
		}
		err = cause
	}
	// The encoder has no type for this one, and shows the text that follows it.
	if strings.Contains(err.Error(), "surrogate") {
		err = errSurrogate
	}
	return placed(err, at)
}

var errSurrogate = errors.New("half of a surrogate pair")

func placed(err error, at jsontext.Pointer) error {
	if at == "" {
		return fmt.Errorf("%w at the top", err)
	}
	place := string(at)
	if len(place) > maxPlace {
		place = place[:maxPlace/2] + "…" + place[len(place)-maxPlace/2:]
	}
	return fmt.Errorf("%w at %s", err, strconv.Quote(place))
}

// maxPlace is how much of a pointer an error shows, in bytes: a value that
// contains itself has a very long one.
const maxPlace = 256
