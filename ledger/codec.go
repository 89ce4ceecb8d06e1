package ledger

import (
	"encoding/base64"
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

func encode(v any) ([]byte, error) {
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
