package runs

import (
	"github.com/go-json-experiment/json"
	jsonv1 "github.com/go-json-experiment/json/v1"
)

// A value that a user hands us is kept as JSON and given back to the same type, often in
// another process: what comes back must be what went in, or an error. So text that is not
// valid UTF-8 is refused instead of mended, nil stays nil, and a time.Duration is a number of
// nanoseconds, as encoding/json has it.
var (
	encoding = json.JoinOptions(
		json.Deterministic(true), json.FormatNilSliceAsNull(true), json.FormatNilMapAsNull(true), jsonv1.FormatDurationAsNano(true),
	)
	decoding = jsonv1.FormatDurationAsNano(true)
)

func encode(v any) ([]byte, error) { return json.Marshal(v, encoding) }

func decode(data []byte, v any) error { return json.Unmarshal(data, v, decoding) }

// kept is a result as the ledger is to keep it.
type kept struct {
	result  []byte
	noValue bool // it happened, but its value cannot be kept (rule S7.5)
}

// keep encodes a result. One that is too large or cannot be encoded is not kept; the effect
// never runs again for that. A MarshalJSON that panics is no panic of the effect, which has
// happened.
func keep(value any, limit int) (result kept) {
	defer func() {
		if recover() != nil {
			result = kept{noValue: true}
		}
	}()
	encoded, err := encode(value)
	if err != nil || len(encoded) > limit {
		return kept{noValue: true}
	}
	return kept{result: encoded}
}
