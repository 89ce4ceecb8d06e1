package key

import (
	"cmp"
	stdjson "encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"time"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"
)

// New returns the key made of names and values: name, value, name, value, and
// so on, as in New("order", "A-17", "line", 2). The order of the pairs does not
// matter.
//
// Names are strings. Values are strings, integers of any size and sign, or
// bools, and types defined as one of those, which count as what they are
// underneath: their methods are not asked. 1, "1" and true are three different
// values; an int64 1 and a uint8 1 are the same.
//
// Everything else makes the key carry an error: floats, nil, structs, slices,
// pointers, times, time.Duration and json.Number (say what you mean by it: an
// integer or a string); an empty name or string; a name without a value, or
// twice; text that is not valid UTF-8; an integer that a float64 cannot hold
// exactly, such as 1<<53 + 1, because RFC 8785 numbers are float64 (write it
// as a string); no pair at all; more than [MaxKey] bytes as JSON.
func New(nameValuePairs ...any) Key {
	if len(nameValuePairs) == 0 {
		return Key{}
	}
	var few [8]pair
	pairs := few[:0]
	for i := 0; i < len(nameValuePairs); i += 2 {
		name, ok := nameValuePairs[i].(string)
		if !ok {
			return Key{fault: fmt.Sprintf("name %d is %s, not a string", i/2+1, describe(nameValuePairs[i]))}
		}
		if fault := checkText(name); fault != "" {
			return Key{fault: fmt.Sprintf("name %d is %s", i/2+1, fault)}
		}
		if i+1 == len(nameValuePairs) {
			return Key{fault: fmt.Sprintf("name %s has no value", quote(name))}
		}
		pairs = append(pairs, pair{name, nameValuePairs[i+1]})
	}
	slices.SortFunc(pairs, func(a, b pair) int { return compareNames(a.name, b.name) })

	var onStack [256]byte
	b := append(onStack[:0], '{')
	for i, p := range pairs {
		if i > 0 {
			if p.name == pairs[i-1].name {
				return Key{fault: fmt.Sprintf("name %s is given twice", quote(p.name))}
			}
			b = append(b, ',')
		}
		b, _ = jsontext.AppendQuote(b, p.name) // its only error is invalid UTF-8
		b = append(b, ':')
		var fault string
		if b, fault = appendValue(b, p.value); fault != "" {
			return Key{fault: fmt.Sprintf("the value of %s is %s", quote(p.name), fault)}
		}
	}
	return finish(append(b, '}'))
}

type pair struct {
	name  string
	value any
}

// compareNames orders names as RFC 8785 does: by UTF-16 code units. That is the
// order of the code points, but for those beyond U+FFFF: their surrogates sort
// before U+E000. Both names must be valid UTF-8.
func compareNames(a, b string) int {
	i := 0
	for i < len(a) && i < len(b) && a[i] == b[i] {
		i++
	}
	// In UTF-8 a first byte of 0xF0 or more begins a code point beyond U+FFFF,
	// and 0xEE and 0xEF begin U+E000 to U+FFFF. Bytes further in are of code
	// points of the same length and compare as they are.
	if i < len(a) && i < len(b) {
		if x, y := a[i], b[i]; x >= 0xEE && y >= 0xEE && (x >= 0xF0) != (y >= 0xF0) {
			return cmp.Compare(y, x)
		}
	}
	return cmp.Compare(a[i:], b[i:])
}

// checkText returns what is wrong with a name, or with a string as value.
func checkText(s string) (fault string) {
	switch {
	case s == "":
		return "empty"
	case !utf8.ValidString(s):
		return "not valid UTF-8"
	}
	return ""
}

// appendValue appends the value as JSON, or returns what is wrong with it.
func appendValue(dst []byte, v any) (_ []byte, fault string) {
	switch v := v.(type) {
	case string:
		return appendString(dst, v)
	case int:
		return appendInt(dst, int64(v))
	case int64:
		return appendInt(dst, v)
	case bool:
		return strconv.AppendBool(dst, v), ""
	case time.Duration, stdjson.Number:
		return dst, describe(v) + ", " + wanted
	}
	switch r := reflect.ValueOf(v); r.Kind() {
	case reflect.String:
		return appendString(dst, r.String())
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		return appendInt(dst, r.Int())
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		return appendUint(dst, r.Uint())
	case reflect.Bool:
		return strconv.AppendBool(dst, r.Bool()), ""
	}
	return dst, describe(v) + ", " + wanted
}

const (
	wanted  = "but keys hold strings, integers and bools only"
	inexact = "an integer that a float64 cannot hold exactly (RFC 8785 numbers are float64): write it as a string"
)

func appendString(dst []byte, s string) ([]byte, string) {
	if fault := checkText(s); fault != "" {
		return dst, fault
	}
	dst, _ = jsontext.AppendQuote(dst, s)
	return dst, ""
}

func appendInt(dst []byte, i int64) ([]byte, string) {
	if i >= 0 {
		return appendUint(dst, uint64(i))
	}
	// No int64 is nearest to a float64 below the smallest one, so the way back is
	// always defined.
	f := float64(i)
	if int64(f) != i {
		return dst, inexact
	}
	return strconv.AppendFloat(dst, f, 'f', -1, 64), ""
}

func appendUint(dst []byte, u uint64) ([]byte, string) {
	if u < 1<<53 {
		return strconv.AppendUint(dst, u, 10), ""
	}
	// Beyond the largest uint64 the way back from float64 is not defined.
	f := float64(u)
	if f >= 1<<64 || uint64(f) != u {
		return dst, inexact
	}
	// RFC 8785 writes the shortest digits that mean this float64, filled up with
	// zeros, and no exponent below 1e21.
	return strconv.AppendFloat(dst, f, 'f', -1, 64), ""
}

// describe names the type of v, never its value.
func describe(v any) string {
	if v == nil {
		return "nil"
	}
	return "of type " + reflect.TypeOf(v).String()
}

// quote shows a name in an error, cut where it would drown the message.
func quote(name string) string {
	const most = 64
	if len(name) > most {
		return strconv.Quote(name[:most]) + "…"
	}
	return strconv.Quote(name)
}
