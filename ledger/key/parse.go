package key

import (
	"fmt"
	"maps"
	"math"
	"slices"

	"github.com/go-json-experiment/json"
)

// Parse returns the key that the JSON text is: what [Key.Canonical] returned,
// or the same value as a person or another language wrote it, with other
// spacing, escapes or order of names. It fails on JSON that neither [ID] nor
// [New] makes, with an error that names the offending part.
func Parse(text string) (Key, error) {
	canonical, err := canonicalize([]byte(text))
	if err != nil {
		return Key{}, fmt.Errorf("fencedrun: parse key: %w", err)
	}
	var v any
	if err := json.Unmarshal(canonical, &v); err != nil {
		return Key{}, fmt.Errorf("fencedrun: parse key: %w", err)
	}
	k := fromJSON(v)
	if err := k.Err(); err != nil {
		return Key{}, err
	}
	return k, nil
}

func fromJSON(v any) Key {
	switch v := v.(type) {
	case string:
		return ID(v)
	case map[string]any:
		// Sorted, so that of two faults it is always the same one that is told.
		var pairs []any
		for _, name := range slices.Sorted(maps.Keys(v)) {
			pairs = append(pairs, name, integer(v[name]))
		}
		return New(pairs...)
	}
	return Key{fault: "want a JSON string or a JSON object"}
}

// integer returns a float64 that is a whole number of 64 bits as that number,
// and everything else as it came.
func integer(v any) any {
	f, ok := v.(float64)
	switch {
	case !ok || f != math.Trunc(f):
	case f >= -1<<63 && f < 1<<63:
		return int64(f)
	case f >= 0 && f < 1<<64:
		return uint64(f)
	}
	return v
}
