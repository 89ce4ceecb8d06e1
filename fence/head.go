package fence

import "slices"

// Head is the conversation's own record, small whatever the conversation accumulates: it
// holds what nearly every decision needs.
//
// What the comments of Head's and the rows' fields claim is checked by Check after every
// transition in tests.
type Head struct {
	Namespace    string `json:"ns,omitempty"`
	Conversation string `json:"conv"`
	// Epoch is drawn when the record is created, so that a record that was lost and
	// created again makes no old right valid (rule S3.1). It never changes.
	Epoch string `json:"epoch"`
	// Seq orders everything that happened here. It starts at the creation's clock in
	// milliseconds and so never restarts, even if the record was purged in between.
	// No record carries a larger one.
	Seq int64 `json:"seq"`
	// Fence is the last fence number handed out; it starts where Seq starts. No two calls
	// have the same, and none a larger one.
	Fence int64 `json:"fence"`
	// Seats are the deliveries that may be at work: at most one per run, of an active run,
	// and that run's current delivery.
	Seats []Seat `json:"seats,omitempty"`
	// Unresolved are the pending and the ambiguous effects, every one and no other, in the
	// order in which they were claimed. The head is the authority on their state: a claim
	// that lapsed is ambiguous here before its own row is written again.
	Unresolved []Unresolved `json:"unres,omitempty"`
	// Landed is the tail of what landed, by seq: every landing with a seq above Floor is in
	// it, and none other. It holds at most MaxLanded.
	Landed []*Landed `json:"landed,omitempty"`
	Floor  int64     `json:"floor,omitempty"`
	// Wrote holds, per source, the newest order of a run that ended with success and wrote
	// (rule S4.6): none of those on record has a newer one.
	Wrote []Wrote `json:"wrote,omitempty"`
}

// Wrote is the newest order of a source's runs that ended with success and wrote. The runs
// themselves are not looked up to judge an older one.
type Wrote struct {
	Order
	// Until is when the last of these runs may be purged; the source is forgotten then.
	Until Millis `json:"until"`
}

// MaxLanded is how many landings the head remembers. A delivery that has not caught up for
// longer is judged with rows loaded by their seq: same verdict, one more read.
const MaxLanded = 8

// Seat is a delivery that may be at work. Whether it is alive says its lease (rule S9.3). A seat
// whose lease has lapsed stays until another delivery takes one: then its lease was used.
type Seat struct {
	Run      RunKey     `json:"run"`
	Delivery DeliveryID `json:"d"`
	Order    Order      `json:"o,omitzero"` // the run's
	Mode     Mode       `json:"mode"`       // the delivery's
}

// Unresolved is what the head keeps of a pending or ambiguous effect: the call that decides
// its state (rule S2.3), as in the effect's own row.
type Unresolved struct {
	Effect   string     `json:"e"`
	Intent   string     `json:"intent"`
	Key      string     `json:"key"`
	Summary  string     `json:"sum,omitempty"`
	State    State      `json:"st"`
	Claim    string     `json:"claim"` // of the call that decides the state
	Call     int        `json:"call"`  // its number
	Run      RunKey     `json:"run,omitzero"`
	Delivery DeliveryID `json:"d,omitzero"`
	Deadline Millis     `json:"dl"`
	// Latest is the latest deadline of its open calls, 0 if that is Deadline: an earlier call may
	// have the longer one. It counts once the effect is ambiguous, by a settle or by a lapse.
	Latest   Millis   `json:"latest,omitempty"`
	Since    Millis   `json:"since"` // when it was claimed
	Seq      int64    `json:"seq"`   // of the last change of State, the lapse included
	Distinct bool     `json:"distinct,omitempty"`
	Named    bool     `json:"named,omitempty"` // the caller named Answers
	Answers  []string `json:"ans,omitempty"`   // named, or given by the key (rule S5.4)
	// Owners are the other runs that have an ambiguous call of this effect.
	Owners []RunKey `json:"own,omitempty"`
	Again  Again    `json:"again,omitzero"`
}

// Again says whether an ambiguous effect may be called again (rule S8).
type Again struct {
	Repeatable bool   `json:"rep,omitempty"`
	Until      Millis `json:"until,omitempty"` // end of the provider's key window, margin taken off
}

// ownedBy reports whether an unresolved call of this effect is run's.
func (u *Unresolved) ownedBy(run RunKey) bool { return u.Run == run || slices.Contains(u.Owners, run) }

// Open reports whether another call is allowed at this time.
func (a Again) Open(now Millis) bool { return a.Repeatable || now <= a.Until }

// Landed is what the head keeps of a write that happened: a committed effect or a report. It is
// shared by the heads that follow each other, and never changed.
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

// without returns list without what drop says, and leaves list as it is; it is list itself when
// nothing is dropped.
func without[T any](list []T, drop func(*T) bool) []T {
	if !some(list, drop) {
		return list
	}
	var kept []T
	for i := range list {
		if !drop(&list[i]) {
			kept = append(kept, list[i])
		}
	}
	return kept
}

func some[T any](list []T, is func(*T) bool) bool {
	for i := range list {
		if is(&list[i]) {
			return true
		}
	}
	return false
}

// RowKey of the head is empty: it is not one of the rows.
func (h *Head) RowKey() string { return "" }

// Index of the head is empty.
func (h *Head) Index() Index { return Index{} }
