package fence

import "strconv"

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

// Head is the conversation's own record, small whatever the conversation accumulates: it
// holds what nearly every decision needs.
type Head struct {
	Namespace    string `json:"ns,omitempty"`
	Conversation string `json:"conv"`
	// Epoch is drawn when the record is created, so that a record that was lost and
	// created again makes no old right valid (rule S3.1).
	Epoch string `json:"epoch"`
	// Seq orders everything that happened here. It starts at the creation's clock in
	// milliseconds and so never restarts, even if the record was purged in between.
	Seq int64 `json:"seq"`
	// Fence is the last fence number handed out; it starts where Seq starts.
	Fence int64 `json:"fence"`
	// Seats are the deliveries that may be at work, at most one per run.
	Seats []Seat `json:"seats,omitempty"`
	// Unresolved are the pending and the ambiguous effects, oldest first. The head is the
	// authority on their state: a claim that lapsed is ambiguous here before its own row
	// is written again.
	Unresolved []Unresolved `json:"unres,omitempty"`
	// Landed is the tail of what landed: every landing with a seq above Floor is in it.
	Landed []Landed `json:"landed,omitempty"`
	Floor  int64    `json:"floor,omitempty"`
	// Wrote holds, per source, the order of the newest run that ended with success and wrote
	// (rule S4.6).
	Wrote []Order `json:"wrote,omitempty"`
}

// MaxLanded is how many landings the head remembers. A delivery that has not caught up for
// longer is judged with rows loaded by their seq: same verdict, one more read.
const MaxLanded = 8

// Seat is a delivery that may be at work. Whether it is alive says its lease (rule S9.3).
type Seat struct {
	Run      RunKey     `json:"run"`
	Delivery DeliveryID `json:"d"`
	Order    Order      `json:"o,omitzero"`
	Mode     Mode       `json:"mode"`
}

// Unresolved is what the head keeps of a pending or ambiguous effect.
type Unresolved struct {
	Effect   string     `json:"e"`
	Intent   string     `json:"intent"`
	Key      string     `json:"key"`
	Summary  string     `json:"sum,omitempty"`
	State    State      `json:"st"`
	Claim    string     `json:"claim"` // of the call that decides the state
	Run      RunKey     `json:"run,omitzero"`
	Delivery DeliveryID `json:"d,omitzero"`
	Deadline Millis     `json:"dl"`
	Since    Millis     `json:"since"`
	Seq      int64      `json:"seq"`
	Distinct bool       `json:"distinct,omitempty"`
	Named    bool       `json:"named,omitempty"` // the caller named Answers
	Answers  []string   `json:"ans,omitempty"`   // named, or given by the key (rule S5.4)
	// Owners are further runs with an unresolved call of this effect.
	Owners []RunKey `json:"own,omitempty"`
	Again  Again    `json:"again,omitzero"`
}

// Again says whether an ambiguous effect may be called again (rule S8).
type Again struct {
	Repeatable bool   `json:"rep,omitempty"`
	Until      Millis `json:"until,omitempty"` // end of the provider's key window, margin taken off
}

// Landed is what the head keeps of a write that happened: a committed effect or a report.
type Landed struct {
	Seq      int64      `json:"seq"`
	ID       string     `json:"id"` // of the effect, or of the report
	Report   bool       `json:"rep,omitempty"`
	Intent   string     `json:"intent,omitempty"`
	Key      string     `json:"key,omitempty"`
	Summary  string     `json:"sum,omitempty"`
	Run      RunKey     `json:"run,omitzero"`
	Delivery DeliveryID `json:"d,omitzero"`
	Named    bool       `json:"named,omitempty"`
}

// RowKey of the head is empty: it is not one of the rows.
func (h *Head) RowKey() string { return "" }

// Index of the head is empty.
func (h *Head) Index() Index { return Index{} }

// Run is one job's right to write to one conversation.
type Run struct {
	Key        RunKey     `json:"key"`
	Generation int        `json:"gen"`
	State      RunState   `json:"st"`
	End        EndReason  `json:"end,omitempty"`
	Order      Order      `json:"o,omitzero"`
	Mode       Mode       `json:"mode,omitempty"`
	Digest     string     `json:"dig,omitempty"`
	QueueName  string     `json:"qn,omitempty"`
	Inbound    []string   `json:"in,omitempty"`
	Delivery   DeliveryID `json:"d,omitzero"`
	// FirstSeq is the conversation's seq when this generation began: nothing that this run
	// wrote landed before.
	FirstSeq int64  `json:"first,omitempty"`
	BegunAt  Millis `json:"begun,omitempty"`
	// TouchedAt is when the run last began, was released, ended or was cancelled; its
	// retention counts from here.
	TouchedAt Millis `json:"at"`
	// Wrote says that one of its effects is committed (rule S4.6).
	Wrote bool `json:"wrote,omitempty"`
	// Grants are further calls beyond the limit, one for each time a discarded run was
	// pressed to run again (rule S5.6).
	Grants   int    `json:"grants,omitempty"`
	Progress []byte `json:"prog,omitempty"`
	// Parked is the reason for which the queue's job was stopped, "" if it was not.
	Parked Reason `json:"park,omitempty"`
	// Waits are the claims whose being pending refused this run (rule S4.6).
	Waits []string `json:"waits,omitempty"`
	// Refused is the signature of the last refusal with no CatchUp since (rule S5, catching
	// up).
	Refused   string `json:"ref,omitempty"`
	Retention Millis `json:"ret,omitempty"`
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
	return Index{Due: r.TouchedAt + r.Retention}
}

// Finished reports whether the run ended with success.
func (r *Run) Finished() bool { return r.State == RunEnded && r.End == EndSuccess }

// Effect is the record of one side effect on a conversation: every call of it, one by one.
type Effect struct {
	ID       string `json:"id"`
	Intent   string `json:"intent"`
	Key      string `json:"key"` // canonical JSON (RFC 8785)
	Distinct bool   `json:"distinct,omitempty"`
	Calls    []Call `json:"calls"`
	// Grants are further calls beyond the limit, one per operator's "did not happen".
	Grants    int    `json:"grants,omitempty"`
	Forever   bool   `json:"forever,omitempty"`
	Retention Millis `json:"ret,omitempty"`
}

// Call is one try at an effect. Each keeps its own record, so that late evidence about one
// never overwrites another (rule S2).
type Call struct {
	Number   int        `json:"n"`
	Claim    string     `json:"claim"`
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
	Denied     bool   `json:"denied,omitempty"`  // a person or probe said that it did not happen
	ResolvedBy string `json:"rby,omitempty"`
	Note       string `json:"note,omitempty"`
}

// EffectRow returns the row key of effect id.
func EffectRow(id string) string { return "e/" + id }

// RowKey returns the effect's row key.
func (e *Effect) RowKey() string { return EffectRow(e.ID) }

// Deciding returns the call that decides the effect's state (rule S2.3): a committed one, else
// a pending one, else an ambiguous one, else the last.
func (e *Effect) Deciding() *Call {
	for _, want := range [...]State{Committed, Pending, Ambiguous} {
		for i := len(e.Calls) - 1; i >= 0; i-- {
			if e.Calls[i].State == want {
				return &e.Calls[i]
			}
		}
	}
	return &e.Calls[len(e.Calls)-1]
}

// State computes the effect's state from all its calls (rule S2.3).
func (e *Effect) State() State { return e.Deciding().State }

// Index returns what a store may see of the effect.
func (e *Effect) Index() Index {
	c := e.Deciding()
	switch c.State {
	case Pending, Ambiguous:
		return Index{Open: UnresolvedEffect, At: c.At}
	default:
		ix := Index{Landed: c.Seq}
		if !e.Forever {
			ix.Due = c.Settled + e.Retention
		}
		return ix
	}
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
	ID         string   `json:"id"`
	Registered bool     `json:"reg,omitempty"` // a job named it
	Seq        int64    `json:"seq"`
	FirstAt    Millis   `json:"first"`
	NamedAt    Millis   `json:"named"` // by the last Begin that named it
	Answered   []Answer `json:"ans,omitempty"`
	Dismissed  string   `json:"dis,omitempty"` // why it was closed without an answer
	ClosedAt   Millis   `json:"closed,omitempty"`
	Unanswered bool     `json:"unans,omitempty"` // the event was raised
	Retention  Millis   `json:"ret,omitempty"`
}

// Answer says which committed effect or report answered an inbound message.
type Answer struct {
	ID     string `json:"id"`
	Report bool   `json:"rep,omitempty"`
	Intent string `json:"intent,omitempty"`
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
		return Index{Open: OpenInbound, At: i.NamedAt, Due: i.NamedAt + i.Retention}
	}
	return Index{Due: max(i.NamedAt, i.ClosedAt) + i.Retention}
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

// Reference finds the effect or the report that carries a provider's reference.
type Reference struct {
	Ref       string `json:"ref"`
	Effect    string `json:"e,omitempty"`
	Report    string `json:"rep,omitempty"`
	At        Millis `json:"at"`
	Retention Millis `json:"ret,omitempty"`
}

// ReferenceRow returns the row key of provider reference ref.
func ReferenceRow(ref string) string { return "x/" + ref }

// RowKey returns the reference's row key.
func (r *Reference) RowKey() string { return ReferenceRow(r.Ref) }

// Index returns what a store may see of the reference.
func (r *Reference) Index() Index { return Index{Due: r.At + r.Retention} }
