package key

import (
	"errors"
	"fmt"

	"github.com/go-json-experiment/json/jsontext"
)

// Key says which business object an effect is about. Make one with [ID], [New]
// or [Parse]. Keys compare with ==: two are equal when they name the same
// object, whatever the order of their pairs.
//
// A key that could not be made carries an error, see [Key.Err], so that it can
// be written in place, as an argument. The zero Key carries one too.
type Key struct {
	canonical string // RFC 8785 JSON; "" in the zero key and beside a fault
	fault     string // why there is no canonical form
}

// ID returns the key that is a single string, such as a message id. An effect
// of an answering intent with such a key answers that message (rule S5.4).
//
// The key carries an error if the string is empty, not valid UTF-8, or longer
// than [MaxKey] bytes as JSON.
func ID(s string) Key {
	if s == "" {
		return Key{fault: "the id is empty"}
	}
	var onStack [128]byte
	b, err := jsontext.AppendQuote(onStack[:0], s)
	if err != nil {
		return Key{fault: "the id is not valid UTF-8"}
	}
	return finish(b)
}

// finish makes the key of its canonical form.
func finish(canonical []byte) Key {
	if len(canonical) > MaxKey {
		return Key{fault: fmt.Sprintf("the canonical form is %d bytes, over the limit of %d", len(canonical), MaxKey)}
	}
	return Key{canonical: string(canonical)}
}

// Err returns why the key cannot be used, naming the offending part, and nil if
// it can. The error never shows a value, only names.
func (k Key) Err() error {
	switch {
	case k.fault != "":
		return errors.New("fencedrun: key: " + k.fault)
	case k.canonical == "":
		return errEmpty
	}
	return nil
}

var errEmpty = errors.New("fencedrun: key is empty")

// Canonical returns the key as RFC 8785 JSON: a string for [ID], an object for
// [New]. It is "" if the key carries an error. It is what a ledger keeps, and
// [Parse] reads it.
func (k Key) Canonical() string { return k.canonical }

// SingleID returns the string that the key is, and false if the key is made of
// pairs or carries an error. ID("m1") is a single string; New("message", "m1")
// is another key, and is none.
func (k Key) SingleID() (string, bool) {
	if k.canonical == "" || k.canonical[0] != '"' {
		return "", false
	}
	var onStack [128]byte
	b, err := jsontext.AppendUnquote(onStack[:0], k.canonical)
	if err != nil {
		return "", false
	}
	return string(b), true
}

// String returns the key for people: its canonical form, or its error.
func (k Key) String() string {
	if err := k.Err(); err != nil {
		return "!(" + err.Error() + ")"
	}
	return k.canonical
}
