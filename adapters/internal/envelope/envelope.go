// Package envelope is what an enqueued job carries for the adapters beside its
// payload, and how the two queues carry it.
//
// The encodings outlive a deployment: jobs that were enqueued by an older
// version are read by a newer one. Words and formats are frozen in testdata.
package envelope

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"slices"

	"github.com/fencedrun/fencedrun/ledger/key"
)

// Envelope is what a producer says about a job.
type Envelope struct {
	// Conversation that the job works on.
	Conversation string `json:"conversation"`
	// Inbound ids that the job brings. NoInbound says that it brings none; one
	// of the two is needed, because a forgotten id is a forgotten message.
	Inbound   []string `json:"inbound,omitempty"`
	NoInbound bool     `json:"no_inbound,omitzero"`
	// Source and Number are the job's order; no Source, no order.
	Source string `json:"source,omitzero"`
	Number int64  `json:"number,omitzero"`
	// AsOf is the ledger stamp of the payload's snapshot; 0: it has seen nothing.
	AsOf int64 `json:"as_of,omitzero"`
	// Nonce tells apart two jobs that reuse an id and have the same payload.
	Nonce string `json:"nonce,omitzero"`
	// Kept says that the queue keeps a record of the job when it is done.
	Kept bool `json:"kept,omitzero"`
}

// Check reports what makes e unfit to be enqueued. The error names the field.
func (e *Envelope) Check() error {
	if err := key.ValidateName("Conversation", e.Conversation, key.MaxConversation); err != nil {
		return err
	}
	for i, id := range e.Inbound {
		if err := key.ValidateName(fmt.Sprintf("Inbound[%d]", i), id, key.MaxJobID); err != nil {
			return err
		}
		if slices.Contains(e.Inbound[:i], id) {
			return fmt.Errorf("fencedrun: Inbound[%d] is named twice", i)
		}
	}
	switch {
	case len(e.Inbound) > 0 && e.NoInbound:
		return fmt.Errorf("fencedrun: Inbound names %d messages, and NoInbound says that there are none", len(e.Inbound))
	case e.Source == "" && e.Number != 0:
		return fmt.Errorf("fencedrun: Order.Number is %d without an Order.Source: numbers of different sources do not compare", e.Number)
	case e.AsOf < 0:
		return fmt.Errorf("fencedrun: AsOf is %d: a ledger stamp is not negative", e.AsOf)
	}
	if e.Source != "" {
		return key.ValidateName("Order.Source", e.Source, key.MaxQueue)
	}
	return nil
}

// Digest identifies a job's payload together with its nonce. The parts are told
// apart by their lengths, so that no two different triples have one digest.
func Digest(kind string, payload []byte, nonce string) string {
	h := sha256.New()
	for _, part := range [][]byte{[]byte(kind), payload, []byte(nonce)} {
		var size [8]byte
		binary.BigEndian.PutUint64(size[:], uint64(len(part)))
		h.Write(size[:])
		h.Write(part)
	}
	return hex.EncodeToString(h.Sum(nil))
}
