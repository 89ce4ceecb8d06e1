package fence

import (
	"slices"
	"strconv"
)

// Millis is a point of the ledger's clock in milliseconds since 1970, or a duration in
// milliseconds. No worker's clock ever becomes a Millis (rule S3.3).
type Millis int64

// RunKey names a run: the id space of its queue, and the job's id in it.
type RunKey struct {
	Queue string `json:"q"`
	ID    string `json:"id"`
}

// String returns "queue/id".
func (k RunKey) String() string { return k.Queue + "/" + k.ID }

// DeliveryID identifies one execution of a run. The number alone is not enough: a database
// crash can lose an acknowledged Begin and hand its number out again (rule S3.2).
type DeliveryID struct {
	Number int64  `json:"n"`
	Nonce  string `json:"nonce"`
}

// Order says which of two runs is newer. Orders of different sources, equal ones, and the zero
// Order are peers: neither supersedes the other (rule S3.4).
type Order struct {
	Source string `json:"src,omitempty"`
	Number int64  `json:"n,omitempty"`
}

// Newer reports whether o is of the same source as than and larger.
func (o Order) Newer(than Order) bool {
	return o.Source != "" && o.Source == than.Source && o.Number > than.Number
}

// Record is one row of a conversation. Records are never modified once they are in a View: a
// transition works on copies.
type Record interface {
	// RowKey is the row's key within its conversation.
	RowKey() string
	// Index returns what a store needs to know about the row to find it again.
	Index() Index
}

// Index is the part of a row that a store may see. Everything else is opaque to it.
type Index struct {
	Open   OpenKind // what the row waits for, 0 nothing
	At     Millis   // since when it waits; meaningful with Open
	Landed int64    // the seq at which the row's write landed in the conversation, 0 not landed
	Due    Millis   // from when on the row may be purged, 0 never
}

// OpenKind says what an unfinished row waits for.
type OpenKind int

// The kinds of unfinished rows.
const (
	NotOpen          OpenKind = 0
	UnresolvedEffect OpenKind = 1 // a pending or ambiguous effect
	OpenInbound      OpenKind = 2 // an inbound message that nobody answered or dismissed
)

// Run is one job's right to write to one conversation.
type Run struct {
	Key        RunKey    `json:"key"`
	Generation int       `json:"gen"` // 1, and one more for each time the id was reused for new work
	State      RunState  `json:"st"`
	End        EndReason `json:"end,omitempty"` // set when State is ended, and only then
	Order      Order     `json:"o,omitzero"`    // never changes within a generation
	Mode       Mode      `json:"mode,omitempty"`
	Digest     string    `json:"dig,omitempty"`
	QueueName  string    `json:"qn,omitempty"`
	Inbound    []string  `json:"in,omitempty"`
	// Delivery is the current one. Its number never goes down and its nonce changes with it.
	Delivery DeliveryID `json:"d,omitzero"`
	// FirstSeq is the conversation's seq when this generation began: nothing that it wrote
	// landed before. FirstDelivery is the number of its first delivery.
	FirstSeq      int64  `json:"first,omitempty"`
	FirstDelivery int64  `json:"firstd,omitempty"`
	BegunAt       Millis `json:"begun,omitempty"`
	// TouchedAt is when the run last began, was released, ended or was cancelled; its
	// retention counts from here.
	TouchedAt Millis `json:"at"`
	// Wrote says that it owns a committed effect: a call of this run that is not known to have
	// failed is or was in one (rule S4.6). It is set at the latest when such a call commits.
	Wrote bool `json:"wrote,omitempty"`
	// Edited is the number of the first delivery with the present payload, if the queue's job
	// was edited after the run had begun and no such delivery owns a committed effect; else 0.
	Edited int64 `json:"edit,omitempty"`
	// Grants are further calls beyond the limit, one for each time a discarded run was
	// pressed to run again (rule S5.6).
	Grants   int    `json:"grants,omitempty"`
	Progress []byte `json:"prog,omitempty"`
	// Parked is the reason for which the queue's job was stopped, "" if it was not. Only an
	// active run is parked.
	Parked Reason `json:"park,omitempty"`
	// Waits are the claims whose being pending refused this run (rule S4.6).
	Waits []string `json:"waits,omitempty"`
	// Refused is the signature of the last refusal with no CatchUp since (rule S5, catching
	// up).
	Refused   string `json:"ref,omitempty"`
	Retention Millis `json:"ret,omitempty"`
	// Keep is when a purge that still needed the record looks at it again.
	Keep      Millis `json:"keep,omitempty"`
	CancelBy  string `json:"cby,omitempty"`
	CancelWhy string `json:"cwhy,omitempty"`
}

// RunRow returns the row key of run k.
func RunRow(k RunKey) string {
	return "r/" + strconv.Itoa(len(k.Queue)) + ":" + k.Queue + "/" + k.ID
}

// RowKey returns the run's row key.
func (r *Run) RowKey() string { return RunRow(r.Key) }

// Index returns what a store may see of the run.
func (r *Run) Index() Index {
	return Index{Due: max(r.TouchedAt+r.Retention, r.Keep)}
}

// Finished reports whether the run ended with success.
func (r *Run) Finished() bool { return r.State == RunEnded && r.End == EndSuccess }

// Effect is the record of one side effect on a conversation: every call of it, one by one.
type Effect struct {
	ID       string `json:"id"`
	Intent   string `json:"intent"`
	Key      string `json:"key"` // canonical JSON (RFC 8785)
	Distinct bool   `json:"distinct,omitempty"`
	// Calls is never empty. At most one call is pending.
	Calls []Call `json:"calls"`
	// Grants are further calls beyond the limit, one per operator's "did not happen".
	Grants    int    `json:"grants,omitempty"`
	Forever   bool   `json:"forever,omitempty"`
	Retention Millis `json:"ret,omitempty"`
	// Keep is when a purge that still needed the record looks at it again.
	Keep Millis `json:"keep,omitempty"`
	// Probing is zero unless the outcome is unknown.
	Probing Probing `json:"probe,omitzero"`

	row string // its key, if it was computed already
}

// Probing is what is known of the questions that were put to the provider about an unknown
// outcome (rule S8).
type Probing struct {
	Nonce string `json:"nonce,omitempty"` // of the question under way, "" none
	By    string `json:"by,omitempty"`    // the worker that asked last
	Until Millis `json:"until,omitempty"` // until when nobody else asks; meaningful with Nonce
	Tries int    `json:"tries,omitempty"` // questions, the one under way included
	Next  Millis `json:"next,omitempty"`  // not before
	Last  Millis `json:"last,omitempty"`  // when the last answer came
	Note  string `json:"note,omitempty"`  // why that was none
}

// Call is one try at an effect. Each keeps its own record, so that late evidence about one
// never overwrites another (rule S2). Once made, only its outcome changes, and only from
// pending to anything, from ambiguous to committed or failed, and from failed to committed.
type Call struct {
	Number   int        `json:"n"`     // grows along Calls
	Claim    string     `json:"claim"` // of this call alone
	Fence    int64      `json:"fence"`
	Run      RunKey     `json:"run,omitzero"`
	Delivery DeliveryID `json:"d,omitzero"`
	By       string     `json:"by,omitempty"` // the worker
	State    State      `json:"st"`
	Seq      int64      `json:"seq"` // of the last change of State
	At       Millis     `json:"at"`  // claimed
	Deadline Millis     `json:"dl"`
	Settled  Millis     `json:"set,omitempty"`
	Summary  string     `json:"sum,omitempty"`
	Params   string     `json:"par,omitempty"` // canonical JSON
	Named    bool       `json:"named,omitempty"`
	Answers  []string   `json:"ans,omitempty"`
	Again    Again      `json:"again,omitzero"`

	Reference  string `json:"ref,omitempty"`
	Result     []byte `json:"res,omitempty"`
	NoValue    bool   `json:"noval,omitempty"` // committed, but the value could not be kept (S7.5)
	Error      string `json:"err,omitempty"`
	NotStarted bool   `json:"nostart,omitempty"` // never reached the provider (S6.3)
	Late       bool   `json:"late,omitempty"`    // settled after its deadline or after a verdict (S7.3)
	// Vanished: the record was lost and is re-created from the claimer's word (S7.4). Its fence
	// number may have been handed out again in between.
	Vanished   bool   `json:"gone,omitempty"`
	Denied     bool   `json:"denied,omitempty"` // a person or probe said that it did not happen
	Echo       bool   `json:"echo,omitempty"`   // the provider's own report said that it happened (S5)
	ResolvedBy string `json:"rby,omitempty"`    // who, when it was not the claimer
	Note       string `json:"note,omitempty"`
}

// EffectRow returns the row key of effect id.
func EffectRow(id string) string { return "e/" + id }

// RowKey returns the effect's row key.
func (e *Effect) RowKey() string {
	if e.row != "" {
		return e.row
	}
	return EffectRow(e.ID)
}

// Deciding returns the call that decides the effect's state (rule S2.3): a committed one, else
// a pending one, else an ambiguous one, else the last. Of several committed ones it is the
// one that was known first, so that a replay never changes.
func (e *Effect) Deciding() *Call {
	var first *Call
	for i := range e.Calls {
		if c := &e.Calls[i]; c.State == Committed && (first == nil || c.Seq < first.Seq) {
			first = c
		}
	}
	if first != nil {
		return first
	}
	for _, want := range [...]State{Pending, Ambiguous} {
		for i := len(e.Calls) - 1; i >= 0; i-- {
			if e.Calls[i].State == want {
				return &e.Calls[i]
			}
		}
	}
	return &e.Calls[len(e.Calls)-1]
}

// landed returns the committed call that was known last, or nil: a second success is news to
// everybody who has seen the first (rule S7.3).
func (e *Effect) landed() *Call {
	var last *Call
	for i := range e.Calls {
		if c := &e.Calls[i]; c.State == Committed && (last == nil || c.Seq > last.Seq) {
			last = c
		}
	}
	return last
}

// openUntil returns the latest deadline of the calls whose outcome is not known, 0 if it is.
func (e *Effect) openUntil() (latest Millis) {
	for i := range e.Calls {
		if c := &e.Calls[i]; c.State == Pending || c.State == Ambiguous {
			latest = max(latest, c.Deadline)
		}
	}
	return latest
}

// State computes the effect's state from all its calls (rule S2.3).
func (e *Effect) State() State { return e.Deciding().State }

// Index returns what a store may see of the effect.
func (e *Effect) Index() Index {
	c := e.Deciding()
	if c.State == Pending || c.State == Ambiguous {
		return Index{Open: UnresolvedEffect, At: c.At}
	}
	var ix Index
	if last := e.landed(); last != nil {
		ix.Landed = last.Seq
	}
	if !e.Forever {
		var settled Millis
		for i := range e.Calls {
			settled = max(settled, e.Calls[i].Settled)
		}
		ix.Due = max(settled+e.Retention, e.Keep)
	}
	return ix
}

func (e *Effect) call(claim string) *Call {
	for i := range e.Calls {
		if e.Calls[i].Claim == claim {
			return &e.Calls[i]
		}
	}
	return nil
}

// Inbound is a message a customer sent. Whether it is open is computed (rule S4.9).
type Inbound struct {
	ID         string `json:"id"`
	Registered bool   `json:"reg,omitempty"` // a job named it
	Seq        int64  `json:"seq"`
	FirstAt    Millis `json:"first"`
	NamedAt    Millis `json:"named"` // by the last Begin that named it
	// Answered are the committed effects and the reports that answer it: every one on record
	// is in it.
	Answered   []Answer `json:"ans,omitempty"`
	Dismissed  string   `json:"dis,omitempty"` // why it was closed without an answer
	ClosedAt   Millis   `json:"closed,omitempty"`
	Unanswered bool     `json:"unans,omitempty"` // the event was raised
	Retention  Millis   `json:"ret,omitempty"`
	// Keep is when a purge that still needed the record looks at it again.
	Keep Millis `json:"keep,omitempty"`
}

// Answer says which committed effect or report answered an inbound message.
type Answer struct {
	ID     string `json:"id"`
	Report bool   `json:"rep,omitempty"`
	Intent string `json:"intent,omitempty"`
	Key    string `json:"key,omitempty"` // of the effect
	Run    RunKey `json:"run,omitzero"`  // that wrote it
}

// answered reports whether the effect or report behind a is known to answer the message.
func (i *Inbound) answered(a Answer) bool {
	return slices.ContainsFunc(i.Answered, func(b Answer) bool { return a.ID == b.ID && a.Report == b.Report })
}

// InboundRow returns the row key of inbound message id.
func InboundRow(id string) string { return "i/" + id }

// RowKey returns the message's row key.
func (i *Inbound) RowKey() string { return InboundRow(i.ID) }

// Closed reports whether an effect or report answered the message, or somebody dismissed it.
func (i *Inbound) Closed() bool { return len(i.Answered) > 0 || i.Dismissed != "" }

// Index returns what a store may see of the message.
func (i *Inbound) Index() Index {
	if i.Registered && !i.Closed() {
		return Index{Open: OpenInbound, At: i.NamedAt, Due: max(i.NamedAt+i.Retention, i.Keep)}
	}
	return Index{Due: max(max(i.NamedAt, i.ClosedAt)+i.Retention, i.Keep)}
}

// Report is a write that something else made to the conversation (rule S5, outside writes).
type Report struct {
	ID        string   `json:"id"`
	Intent    string   `json:"intent,omitempty"`
	Answers   []string `json:"ans,omitempty"`
	Reference string   `json:"ref,omitempty"`
	Summary   string   `json:"sum,omitempty"`
	By        string   `json:"by,omitempty"`
	Seq       int64    `json:"seq"`
	At        Millis   `json:"at"`
	// Echo is the effect of our own that this report turned out to be, "" if none.
	Echo      string `json:"echo,omitempty"`
	Retention Millis `json:"ret,omitempty"`
}

// ReportRow returns the row key of report id.
func ReportRow(id string) string { return "o/" + id }

// RowKey returns the report's row key.
func (r *Report) RowKey() string { return ReportRow(r.ID) }

// Index returns what a store may see of the report.
func (r *Report) Index() Index {
	ix := Index{Due: r.At + r.Retention}
	if r.Echo == "" {
		ix.Landed = r.Seq
	}
	return ix
}

// Reference finds the effect or the report that carries a provider's reference: one of the two.
type Reference struct {
	Ref       string `json:"ref"`
	Effect    string `json:"e,omitempty"`
	Report    string `json:"rep,omitempty"`
	At        Millis `json:"at"`
	Retention Millis `json:"ret,omitempty"`
	// Keep is when a purge that still needed the record looks at it again.
	Keep Millis `json:"keep,omitempty"`
}

// ReferenceRow returns the row key of provider reference ref.
func ReferenceRow(ref string) string { return "x/" + ref }

// RowKey returns the reference's row key.
func (r *Reference) RowKey() string { return ReferenceRow(r.Ref) }

// Index returns what a store may see of the reference.
func (r *Reference) Index() Index { return Index{Due: max(r.At+r.Retention, r.Keep)} }
