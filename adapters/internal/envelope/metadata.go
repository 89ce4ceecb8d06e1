package envelope

import (
	"encoding/json"
	"fmt"
)

// MetadataKey is the key of a job's metadata that holds its envelope.
const MetadataKey = "fencedrun:job"

// Stamp returns metadata, a JSON object or nothing, with a checked e in it and
// everything else in it unchanged.
func (e *Envelope) Stamp(metadata []byte) ([]byte, error) {
	object := map[string]json.RawMessage{}
	if len(metadata) > 0 {
		if err := json.Unmarshal(metadata, &object); err != nil {
			return nil, fmt.Errorf("fencedrun: the job's metadata is no JSON object: %w", err)
		}
		if object == nil { // the metadata was the word null
			object = map[string]json.RawMessage{}
		}
	}
	stamp, err := json.Marshal(e)
	if err != nil {
		return nil, fmt.Errorf("fencedrun: encode the job's metadata: %w", err)
	}
	object[MetadataKey] = stamp
	stamped, err := json.Marshal(object)
	if err != nil {
		return nil, fmt.Errorf("fencedrun: encode the job's metadata: %w", err)
	}
	return stamped, nil
}

// FromMetadata decodes what [Envelope.Stamp] made. ok is false if the job was
// inserted by somebody who knows nothing of the adapter.
func FromMetadata(metadata []byte) (e Envelope, ok bool, err error) {
	if len(metadata) == 0 {
		return Envelope{}, false, nil
	}
	var object map[string]json.RawMessage
	if err := json.Unmarshal(metadata, &object); err != nil {
		return Envelope{}, false, fmt.Errorf("fencedrun: the job's metadata is no JSON object: %w", err)
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
