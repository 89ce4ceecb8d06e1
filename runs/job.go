package runs

import (
	"fmt"
	"slices"

	"github.com/fencedrun/fencedrun/ledger/key"
)

// Job is what a queue hands to a worker: an identity, the conversation it works on, and the
// messages it was made for. Adapters fill it in.
type Job struct {
	// Queue and ID are the run's key. Queue names the id space, such as "asynq:default" or
	// "river:public"; ID is the job's id in it. At most 512 bytes each.
	Queue, ID string
	// Conversation is what the job's writes must stay consistent on. At most 512 bytes.
	Conversation string
	// Order says which of two runs is newer. The zero Order is a peer of every other.
	Order Order
	// Inbound are the ids of the messages that the job brings (rule S4.9). They are
	// registered when the job begins and stay open until an effect or report answers them,
	// or somebody dismisses them.
	Inbound []string
	// NoInbound says that the job brings no messages. One of Inbound and NoInbound must be
	// given: without ids, nothing notices a message that nobody answered.
	NoInbound bool
	// Digest stands for the payload, with the enqueue nonce where there is one. A finished
	// job that comes with another digest is new work under a reused id (rule S4.3).
	Digest string
	// Reads must be AfterBegin or FromPayload (rule S4.8).
	Reads Reads
	// AsOf is the ledger stamp taken when the payload's snapshot was made; FromPayload only.
	// 0 means that nothing of the conversation was seen.
	AsOf int64
	// Mode defaults to Supersede.
	Mode Mode
	// QueueName is recorded for people; it is not part of the key.
	QueueName string
}

func (j *Job) check() error {
	for _, f := range []struct {
		field, value string
		limit        int
	}{
		{"Job.Queue", j.Queue, key.MaxQueue},
		{"Job.ID", j.ID, key.MaxJobID},
		{"Job.Conversation", j.Conversation, key.MaxConversation},
	} {
		if err := key.ValidateName(f.field, f.value, f.limit); err != nil {
			return err
		}
	}
	switch j.Reads {
	case AfterBegin:
		if j.AsOf != 0 {
			return fmt.Errorf("fencedrun: Job.AsOf is for Job.Reads = FromPayload")
		}
	case FromPayload:
	case "":
		return fmt.Errorf("fencedrun: Job.Reads is not chosen: AfterBegin or FromPayload")
	default:
		return fmt.Errorf("fencedrun: Job.Reads is %q, not AfterBegin or FromPayload", j.Reads)
	}
	switch {
	case j.AsOf < 0:
		return fmt.Errorf("fencedrun: Job.AsOf is negative: %d", j.AsOf)
	case j.Order.Source == "" && j.Order.Number != 0:
		return fmt.Errorf("fencedrun: Job.Order has a number and no Source: numbers compare only within one source")
	case len(j.Inbound) == 0 && !j.NoInbound:
		return fmt.Errorf("fencedrun: Job.Inbound is not chosen: name the messages that the job brings, or say NoInbound")
	case len(j.Inbound) > 0 && j.NoInbound:
		return fmt.Errorf("fencedrun: Job.Inbound is given although Job.NoInbound says that there is none")
	}
	if err := checkIDs("Job.Inbound", j.Inbound); err != nil {
		return err
	}
	switch j.Mode {
	case "", Supersede, Exclusive:
	default:
		return fmt.Errorf("fencedrun: Job.Mode is %q, not Supersede or Exclusive", j.Mode)
	}
	return nil
}

// checkIDs checks message ids and that none is named twice.
func checkIDs(field string, ids []string) error {
	for i, id := range ids {
		if err := key.ValidateName(fmt.Sprintf("%s[%d]", field, i), id, key.MaxJobID); err != nil {
			return err
		}
		if slices.Contains(ids[:i], id) {
			return fmt.Errorf("fencedrun: %s[%d] is named twice", field, i)
		}
	}
	return nil
}

func (j *Job) key() RunKey { return RunKey{Queue: j.Queue, ID: j.ID} }

// own returns a copy that shares nothing with the caller, defaults filled in.
func (j *Job) own() Job {
	own := *j
	own.Inbound = slices.Clone(j.Inbound)
	own.QueueName = clean(j.QueueName)
	if own.Mode == "" {
		own.Mode = Supersede
	}
	return own
}
