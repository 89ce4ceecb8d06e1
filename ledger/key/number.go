package key

import (
	"bytes"
	"errors"
	"strconv"

	"github.com/go-json-experiment/json/jsontext"
)

var (
	errInexact    = errors.New("integer that a float64 cannot hold exactly (write it as a string)")
	errOutOfRange = errors.New("number out of the range of a float64")
)

// badNumber returns where the first number begins that [checkNumber] refuses,
// or -1. The text must be valid JSON.
func badNumber(text []byte) int {
	for i := 0; i < len(text); {
		switch c := text[i]; {
		case c == '"':
			i = skipString(text, i)
		case c == '-' || '0' <= c && c <= '9':
			end := i + 1
			for end < len(text) && isNumberByte(text[end]) {
				end++
			}
			if checkNumber(text[i:end]) != nil {
				return i
			}
			i = end
		default:
			i++
		}
	}
	return -1
}

// skipString returns the index after the string that begins at i.
func skipString(text []byte, i int) int {
	for i++; text[i] != '"'; i++ {
		if text[i] == '\\' {
			i++
		}
	}
	return i + 1
}

func isNumberByte(c byte) bool {
	return '0' <= c && c <= '9' || c == '.' || c == 'e' || c == 'E' || c == '+' || c == '-'
}

// checkNumber returns what is wrong with a JSON number.
func checkNumber(literal []byte) error {
	isInteger := !bytes.ContainsAny(literal, ".eE")
	if isInteger && len(literal) <= 15 {
		return nil // fewer digits than 1<<53 has
	}
	number := string(literal)
	f, err := strconv.ParseFloat(number, 64)
	switch {
	case err != nil:
		return errOutOfRange
	case f == 0 && hasDigit(number):
		return errOutOfRange // a number is not nothing
	case isInteger &&
		strconv.FormatFloat(f, 'f', 0, 64) != number && // exactly what the float64 is
		strconv.FormatFloat(f, 'f', -1, 64) != number: // how RFC 8785 writes it
		return errInexact
	}
	return nil
}

// hasDigit reports whether a digit other than 0 stands before the exponent.
func hasDigit(number string) bool {
	for _, c := range []byte(number) {
		switch {
		case c == 'e' || c == 'E':
			return false
		case '1' <= c && c <= '9':
			return true
		}
	}
	return false
}

// badNumberError returns the error for the number that begins at offset i. The
// text is read again, by a decoder that keeps the place, only now that there is
// something to tell.
func badNumberError(text []byte, i int) error {
	d := jsontext.NewDecoder(bytes.NewReader(text))
	for {
		token, err := d.ReadToken()
		if err != nil {
			return err
		}
		if d.InputOffset() > int64(i) {
			return placed(checkNumber([]byte(token.String())), d.StackPointer())
		}
	}
}
