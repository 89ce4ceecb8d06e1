package envelope

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json"
)

// The headers of a task. One per field, so that people can read them in the
// queue's own tools.
const (
	HeaderConversation = "fencedrun-conversation"
	HeaderInbound      = "fencedrun-inbound"
	HeaderOrder        = "fencedrun-order"
	HeaderAsOf         = "fencedrun-as-of"
	HeaderNonce        = "fencedrun-nonce"
	HeaderKept         = "fencedrun-kept"
)

// none is what HeaderInbound says of a task that brings no messages.
const none = "none"

// Headers encodes a checked e.
func (e *Envelope) Headers() (map[string]string, error) {
	h := map[string]string{HeaderConversation: e.Conversation}
	switch {
	case e.NoInbound:
		h[HeaderInbound] = none
	case len(e.Inbound) > 0:
		ids, err := json.Marshal(e.Inbound)
		if err != nil {
			return nil, fmt.Errorf("fencedrun: encode Inbound: %w", err)
		}
		h[HeaderInbound] = string(ids)
	}
	if e.Source != "" {
		h[HeaderOrder] = strconv.FormatInt(e.Number, 10) + " " + e.Source
	}
	if e.AsOf != 0 {
		h[HeaderAsOf] = strconv.FormatInt(e.AsOf, 10)
	}
	if e.Nonce != "" {
		h[HeaderNonce] = e.Nonce
	}
	if e.Kept {
		h[HeaderKept] = "1"
	}
	return h, nil
}

// FromHeaders decodes what [Envelope.Headers] made. ok is false if the headers
// are those of a task whose producer knows nothing of the adapter.
func FromHeaders(h map[string]string) (e Envelope, ok bool, err error) {
	e.Conversation, ok = h[HeaderConversation]
	if !ok {
		return Envelope{}, false, nil
	}
	switch ids := h[HeaderInbound]; ids {
	case "":
	case none:
		e.NoInbound = true
	default:
		if err := json.Unmarshal([]byte(ids), &e.Inbound); err != nil {
			return Envelope{}, true, fmt.Errorf("fencedrun: header %s is no list of ids: %w", HeaderInbound, err)
		}
	}
	if order, found := h[HeaderOrder]; found {
		number, source, cut := strings.Cut(order, " ")
		e.Source = source
		if e.Number, err = strconv.ParseInt(number, 10, 64); err != nil || !cut || source == "" {
			return Envelope{}, true, fmt.Errorf("fencedrun: header %s is %q, want a number, a space and its source", HeaderOrder, order)
		}
	}
	if asOf, found := h[HeaderAsOf]; found {
		if e.AsOf, err = strconv.ParseInt(asOf, 10, 64); err != nil {
			return Envelope{}, true, fmt.Errorf("fencedrun: header %s is %q, want a number", HeaderAsOf, asOf)
		}
	}
	e.Nonce = h[HeaderNonce]
	e.Kept = h[HeaderKept] == "1"
	if err := e.Check(); err != nil {
		return Envelope{}, true, err
	}
	return e, true, nil
}
