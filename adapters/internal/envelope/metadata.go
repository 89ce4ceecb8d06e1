package envelope

import (
	"fmt"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// MetadataKey is the key of a job's metadata that holds its envelope.
const MetadataKey = "fencedrun:job"

// Stamp returns metadata, a JSON object or nothing, with a checked e in it and
// everything else in it unchanged.
func (e *Envelope) Stamp(metadata []byte) ([]byte, error) {
	object, err := parse(metadata)
	if err != nil {
		return nil, err
	}
	stamp, err := json.Marshal(e)
	if err != nil {
		return nil, fmt.Errorf("fencedrun: encode the job's metadata: %w", err)
	}
	object[MetadataKey] = stamp
	stamped, err := json.Marshal(object, json.Deterministic(true))
	if err != nil {
		return nil, fmt.Errorf("fencedrun: encode the job's metadata: %w", err)
	}
	return stamped, nil
}

// FromMetadata decodes what [Envelope.Stamp] made. ok is false if the job was
// inserted by somebody who knows nothing of the adapter.
func FromMetadata(metadata []byte) (e Envelope, ok bool, err error) {
	object, err := parse(metadata)
	if err != nil {
		return Envelope{}, false, err
	}
	stamp, ok := object[MetadataKey]
	if !ok {
		return Envelope{}, false, nil
	}
	if err := json.Unmarshal(stamp, &e); err != nil {
		return Envelope{}, true, fmt.Errorf("fencedrun: the job's metadata at %s: %w", MetadataKey, err)
	}
	if err := e.Check(); err != nil {
		return Envelope{}, true, err
	}
	return e, true, nil
}

// Has reports whether metadata has a value, other than null, for name.
func Has(metadata []byte, name string) bool {
	object, err := parse(metadata)
	v, ok := object[name]
	return err == nil && ok && v.Kind() != 'n'
}

// parse reads the members of a job's metadata, which is mostly other people's.
func parse(metadata []byte) (map[string]jsontext.Value, error) {
	object := map[string]jsontext.Value{}
	if len(metadata) == 0 {
		return object, nil
	}
	// The queue takes the last of two members with one name, so they are no error.
	if err := json.Unmarshal(metadata, &object, jsontext.AllowDuplicateNames(true)); err != nil {
		return nil, fmt.Errorf("fencedrun: the job's metadata is no JSON object: %w", err)
	}
	if object == nil { // the metadata was the word null
		object = map[string]jsontext.Value{}
	}
	return object, nil
}
