// Package transcript reads recorded support conversations and turns them into what the example plays: the customer's
// messages in bursts, and for each burst what a good bot would do and say.
package transcript

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"unicode/utf8"
)

// Who speaks in a turn.
const (
	Customer = "customer" // wrote a message
	Agent    = "agent"    // the human agent answered
	Act      = "action"   // the human agent did something: looked up an account, told the manager
)

// MaxID is the longest convo_id in bytes: conversation and message ids are made from it and must stay short enough for keys.
const MaxID = 200

// Turn is one line of a conversation.
type Turn struct {
	Speaker string
	Text    string
}

// Conversation is one recorded conversation.
type Conversation struct {
	ID    string
	Turns []Turn
}

// LineError says which line of the input is malformed, and why.
type LineError struct {
	Line int
	Err  error
}

func (e *LineError) Error() string { return fmt.Sprintf("line %d: %v", e.Line, e.Err) }
func (e *LineError) Unwrap() error { return e.Err }

const maxReported = 10

// Read reads conversations, one JSON object a line:
//
//	{"convo_id": 3592, "original": [["customer", "Hi!"], ["agent", "Hello!"], ["action", "The manager has been notified."]]}
//
// Other members of the object are ignored, and so are empty lines. Every malformed line is reported as a [LineError] (the
// first ten, joined); then no conversation is returned.
func Read(r io.Reader) ([]Conversation, error) {
	var (
		conversations []Conversation
		errs          []error
		seen          = map[string]int{}
	)
	lines := bufio.NewReader(r)
	for number := 1; ; number++ {
		line, err := lines.ReadBytes('\n')
		if err != nil && err != io.EOF {
			return nil, fmt.Errorf("read: %w", err)
		}
		if number == 1 {
			line = bytes.TrimPrefix(line, []byte("\ufeff"))
		}
		if text := bytes.TrimSpace(line); len(text) > 0 {
			conversation, lineErr := parse(text)
			if lineErr == nil && seen[conversation.ID] > 0 {
				lineErr = fmt.Errorf("convo_id %q was used on line %d", conversation.ID, seen[conversation.ID])
			}
			if lineErr != nil {
				errs = append(errs, &LineError{Line: number, Err: lineErr})
			} else {
				seen[conversation.ID] = number
				conversations = append(conversations, conversation)
			}
		}
		if err == io.EOF {
			break
		}
		if len(errs) == maxReported {
			errs = append(errs, errors.New("stopped reading: too many malformed lines"))
			break
		}
	}
	if len(errs) > 0 {
		return nil, errors.Join(errs...)
	}
	if len(conversations) == 0 {
		return nil, errors.New("no conversation in the input")
	}
	return conversations, nil
}

func parse(line []byte) (Conversation, error) {
	if !utf8.Valid(line) {
		return Conversation{}, errors.New("not valid UTF-8")
	}
	var raw struct {
		ID       json.RawMessage   `json:"convo_id"`
		Original []json.RawMessage `json:"original"`
	}
	if err := json.Unmarshal(line, &raw); err != nil {
		return Conversation{}, readable(err)
	}
	id, err := parseID(raw.ID)
	if err != nil {
		return Conversation{}, err
	}
	conversation := Conversation{ID: id}
	customers := 0
	for i, original := range raw.Original {
		var turn []string
		if err := json.Unmarshal(original, &turn); err != nil || len(turn) != 2 {
			return Conversation{}, fmt.Errorf(`original[%d]: want ["speaker", "text"]`, i)
		}
		switch turn[0] {
		case Customer:
			customers++
		case Agent, Act:
		default:
			return Conversation{}, fmt.Errorf("original[%d]: speaker %q is none of %s, %s, %s", i, turn[0], Customer, Agent, Act)
		}
		if turn[1] == "" {
			return Conversation{}, fmt.Errorf("original[%d]: empty text", i)
		}
		conversation.Turns = append(conversation.Turns, Turn{Speaker: turn[0], Text: turn[1]})
	}
	if customers == 0 {
		return Conversation{}, errors.New("original: no turn of a customer")
	}
	return conversation, nil
}

// parseID takes a string or a whole number; the data set has numbers.
func parseID(raw json.RawMessage) (string, error) {
	if len(raw) == 0 || string(raw) == "null" {
		return "", errors.New("convo_id: missing")
	}
	var id string
	if json.Unmarshal(raw, &id) != nil {
		var number int64
		if json.Unmarshal(raw, &number) != nil {
			return "", errors.New("convo_id: want a string or a whole number")
		}
		id = fmt.Sprint(number)
	}
	if id == "" {
		return "", errors.New("convo_id: empty")
	}
	if len(id) > MaxID {
		return "", fmt.Errorf("convo_id: %d bytes, at most %d", len(id), MaxID)
	}
	return id, nil
}

// readable says in the reader's words what encoding/json says in Go's.
func readable(err error) error {
	var syntax *json.SyntaxError
	var typed *json.UnmarshalTypeError
	switch {
	case errors.As(err, &syntax):
		return fmt.Errorf("not JSON: %w (byte %d)", err, syntax.Offset)
	case errors.As(err, &typed) && typed.Field == "":
		return fmt.Errorf("want a JSON object, found %s", typed.Value)
	case errors.As(err, &typed):
		return fmt.Errorf("%s: found %s, want a list of turns", typed.Field, typed.Value)
	default:
		return err
	}
}
