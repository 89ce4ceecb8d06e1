package ledger

import (
	"bytes"
	"encoding/base64"
	stdjson "encoding/json"
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// The bodies of rows are JSON, so that people can read them with the database's own client.
//
// JSON holds Unicode text only, and ids, references and error texts that come from outside
// are any bytes. They must come back as they were: a changed inbound id would be answered a
// second time, and one that cannot be written would make a settle fail. So a body that holds
// other bytes than UTF-8 starts with a blank, and every string of it that is not plain text is
// written as NUL and its base64.
const (
	armored = ' '
	armor   = "\x00"
)

var (
	plain    = json.OmitZeroStructFields(true)
	armoring = json.JoinOptions(plain, json.WithMarshalers(json.MarshalToFunc(putOn)))
	unarmor  = json.WithUnmarshalers(json.UnmarshalFromFunc(takeOff))
)

// replaced is what encoding/json writes for bytes that are no UTF-8. The character U+FFFD itself
// it writes as it is.
var replaced = []byte(`\ufffd`)

// encode writes with encoding/json, which takes half the time of the strict encoder, and has the
// strict one look at what might have lost something.
func encode(v any) ([]byte, error) {
	var b bytes.Buffer
	quick := stdjson.NewEncoder(&b) //nolint:forbidigo // what it would lose is looked for below
	quick.SetEscapeHTML(false)
	if err := quick.Encode(v); err != nil {
		return nil, err
	}
	if body := bytes.TrimSuffix(b.Bytes(), []byte("\n")); !bytes.Contains(body, replaced) {
		return body, nil
	}
	body, err := json.Marshal(v, plain)
	var syntax *jsontext.SyntacticError
	if err == nil || !errors.As(err, &syntax) {
		return body, err
	}
	body, err = json.Marshal(v, armoring)
	return append([]byte{armored}, body...), err
}

func decode(body []byte, v any) error {
	if len(body) > 0 && body[0] == armored {
		return json.Unmarshal(body, v, unarmor)
	}
	return json.Unmarshal(body, v)
}

func putOn(enc *jsontext.Encoder, s string) error {
	if utf8.ValidString(s) && !strings.HasPrefix(s, armor) {
		return errors.ErrUnsupported
	}
	return enc.WriteToken(jsontext.String(armor + base64.StdEncoding.EncodeToString([]byte(s))))
}

func takeOff(dec *jsontext.Decoder, s *string) error {
	if dec.PeekKind() != '"' {
		return errors.ErrUnsupported
	}
	token, err := dec.ReadToken()
	if err != nil {
		return err
	}
	*s = token.String()
	coded, ok := strings.CutPrefix(*s, armor)
	if !ok {
		return nil
	}
	raw, err := base64.StdEncoding.DecodeString(coded)
	if err != nil {
		return fmt.Errorf("armored string: %w", err)
	}
	*s = string(raw)
	return nil
}
