package fence_test

import (
	"errors"
	"fmt"
	"maps"
	"strings"

	"github.com/cockroachdb/datadriven"

	"github.com/fencedrun/fencedrun/fence"
)

// stage plays a scenario: it stands for the processes, which remember their deliveries and
// what they were granted, while world stands for the ledger.
type stage struct {
	w          *world
	deliveries map[fence.RunKey][]*fence.Delivery // by number
	calls      map[string][]granted               // by effect, as this process knows them
	intents    map[string]*args
	stamps     map[string]int64
	saved      *world
	broken     error
}

type granted struct {
	claim  string
	effect *fence.Effect
	run    fence.RunKey
	number int // of the delivery
}

func newStage(r fence.Rules) *stage {
	return &stage{
		w: newWorld(r), deliveries: map[fence.RunKey][]*fence.Delivery{}, calls: map[string][]granted{},
		intents: map[string]*args{}, stamps: map[string]int64{},
	}
}

var commands = map[string]func(*stage, *args) string{
	"config": (*stage).config, "intent": (*stage).intent,
	"begin": (*stage).begin, "claim": (*stage).claim, "settle": (*stage).settle, "catchup": (*stage).catchUp,
	"end": (*stage).end, "unfinished": (*stage).unfinished, "release": (*stage).release, "cancel": (*stage).cancel,
	"report": (*stage).report, "dismiss": (*stage).dismiss, "resolve": (*stage).resolve, "probe": (*stage).probe, "probed": (*stage).probed, "stamp": (*stage).stamp,
	"beat": (*stage).beat, "renew": (*stage).renew, "progress": (*stage).progress, "purge": (*stage).purge,
	"advance": (*stage).advance, "show": (*stage).show, "lose": (*stage).lose, "bury": (*stage).bury, "forget": (*stage).forget,
	"save": (*stage).save, "restore": (*stage).restore,
}

// run plays one command and returns what is to be seen of it.
func (s *stage) run(td *datadriven.TestData) (out string) {
	defer func() {
		if r := recover(); r != nil {
			bad, ok := r.(badScenario)
			if !ok {
				panic(r)
			}
			s.broken = errors.New(string(bad))
			out = "cannot: " + string(bad)
		}
	}()
	command, ok := commands[td.Cmd]
	if !ok {
		panic(wrongf("no command is called %s", td.Cmd))
	}
	a := &args{cmd: td.Cmd, have: td.CmdArgs}
	out = command(s, a)
	a.unknown()
	return out
}

// say adds the events to a verdict, and what is broken.
func (s *stage) say(verdict string, d decision) string {
	lines := []string{verdict}
	for _, e := range d.events {
		lines = append(lines, "  event "+fence.DescribeAt(e, s.w.now))
	}
	if d.broken != nil {
		s.broken = d.broken
		lines = append(lines, "BROKEN: "+d.broken.Error())
	}
	return strings.Join(lines, "\n")
}

func (s *stage) tell(verdict any, d decision) string {
	return s.say(fence.DescribeAt(verdict, s.w.now), d)
}

// delivery is the run's latest one, or the one that is named.
func (s *stage) delivery(a *args) *fence.Delivery {
	key := a.run()
	all := s.deliveries[key]
	n := a.number("delivery", len(all))
	if n < 1 || n > len(all) {
		panic(wrongf("%s: run %s has no delivery %d", a.cmd, key, n))
	}
	return all[n-1]
}

func (s *stage) learn(d *fence.Delivery) {
	if d == nil {
		return
	}
	all := s.deliveries[d.Run]
	for i := range all {
		if all[i].ID == d.ID {
			all[i] = d
		}
	}
}

func (s *stage) config(a *args) string {
	r := &s.w.rules
	r.Lease = a.millis("lease", r.Lease)
	r.Quiet = a.millis("quiet", r.Quiet)
	r.Retention = a.millis("retention", r.Retention)
	r.MaxCalls = a.number("maxcalls", r.MaxCalls)
	return "ok"
}

// intent declares what is true of every effect of an intent.
func (s *stage) intent(a *args) string {
	s.intents[a.need("name")] = a
	for _, key := range []string{"answering", "distinct", "repeatable", "forever", "window", "maxcalls"} {
		a.has(key)
	}
	return "ok"
}

func (s *stage) begin(a *args) string {
	conv := a.text("conv", "c")
	q := fence.BeginRequest{
		Identity: s.w.identity(conv), Run: a.run(), Order: s.order(a), Inbound: a.list("brings"), Digest: a.text("payload", "p"),
		Mode: fence.Mode(a.text("mode", string(fence.Supersede))), Reads: fence.AfterBegin, QueueName: "support",
	}
	if a.has("again") { // the answer of the last Begin was lost
		q.Nonce = s.deliveries[q.Run][len(s.deliveries[q.Run])-1].ID.Nonce
	}
	if v := a.text("asof", ""); v != "" {
		q.Reads, q.AsOf = fence.FromPayload, s.stamps[v]
	}
	// As the ledger does it: a run that the directory knows elsewhere is looked up there.
	if home := s.w.homes[q.Run]; home.Found && home.Where != "" && home.Where != conv {
		q.Elsewhere, _ = s.w.conv(home.Where).rows[fence.RunRow(q.Run)].(*fence.Run)
		if q.Elsewhere == nil {
			q.Elsewhere = &fence.Run{Key: q.Run, State: fence.RunEnded, End: fence.EndDiscarded}
		}
	}
	v, d := decide(s.w, conv, q.Run, func(view fence.View) (fence.BeginVerdict, fence.Change) { return s.w.rules.Begin(view, q) })
	if v.Delivery != nil && !a.has("lost") {
		s.enter(v.Delivery)
	}
	return s.tell(v, d)
}

// enter remembers a granted delivery, once.
func (s *stage) enter(d *fence.Delivery) {
	all := s.deliveries[d.Run]
	if n := len(all); n > 0 && all[n-1].ID == d.ID {
		all[n-1] = d
		return
	}
	s.deliveries[d.Run] = append(all, d)
}

func (s *stage) order(a *args) fence.Order {
	v := a.text("order", "")
	if v == "" {
		return fence.Order{}
	}
	source, number, _ := strings.Cut(v, ":")
	if stamp, ok := s.stamps[number]; ok {
		return fence.Order{Source: source, Number: stamp}
	}
	var n int64
	if _, err := fmt.Sscanf(number, "%d", &n); err != nil {
		panic(wrongf("%s is no order: source:number", v))
	}
	return fence.Order{Source: source, Number: n}
}

func (s *stage) claim(a *args) string {
	conv := a.text("conv", "c")
	e := effectOf(a.need("effect"))
	q := fence.ClaimRequest{
		Identity: s.w.identity(conv), Effect: e.id, Intent: e.intent, Key: e.key, KeyID: e.keyID,
		Params: a.text("params", ""), Summary: a.text("summary", ""), Answers: a.list("answers"), By: "worker",
		Answering: e.intent == "reply", Policy: fence.Policy(a.text("policy", string(fence.AnyChange))),
		AfterUnresolved: a.has("after-unresolved"), Claim: s.w.draw("claim"), For: a.millis("for", 120_000),
	}
	if in := s.intents[e.intent]; in != nil {
		q.Answering = q.Answering || in.has("answering")
		q.Distinct, q.Repeatable, q.Forever = in.has("distinct"), in.has("repeatable"), in.has("forever")
		q.MaxCalls, q.KeyWindow = in.number("maxcalls", 0), in.millis("window", 0)
	}
	if a.has("run") {
		q.Delivery = s.delivery(a)
	}
	known := s.calls[conv+" "+e.id]
	if a.has("again") { // the answer of the last claim was lost
		q.Claim = known[len(known)-1].claim
	}
	v, d := decide(s.w, conv, fence.RunKey{}, func(view fence.View) (fence.ClaimVerdict, fence.Change) {
		return s.w.rules.Claim(view, q)
	})
	s.learn(v.Delivery)
	if v.Call != nil && !a.has("again") {
		g := granted{claim: q.Claim, effect: v.Effect, run: v.Call.Run, number: int(v.Call.Delivery.Number)}
		s.calls[conv+" "+e.id] = append(known, g)
	}
	return s.tell(v, d)
}

func (s *stage) settle(a *args) string {
	conv := a.text("conv", "c")
	e := effectOf(a.need("effect"))
	known := s.calls[conv+" "+e.id]
	n := a.number("call", len(known))
	if n < 1 || n > len(known) {
		panic(wrongf("settle: %s has no call %d", e.id, n))
	}
	g := known[n-1]
	q := fence.SettleRequest{
		Identity: s.w.identity(conv), Effect: e.id, Claim: g.claim, Result: []byte(a.text("result", "")),
		NoValue: a.has("no-value"), Reference: a.text("reference", ""), Error: a.text("error", ""), Echo: a.has("echo"),
	}
	switch a.oneOf("committed", "failed", "ambiguous", "not-started") {
	case "committed":
		q.State = fence.Committed
	case "failed":
		q.State = fence.Failed
	case "ambiguous":
		q.State = fence.Ambiguous
	case "not-started":
		q.State, q.NotStarted = fence.Failed, true
	}
	if !a.has("elsewhere") { // else by a process that knows nothing but the claim
		q.Granted = g.effect
		if all := s.deliveries[g.run]; g.number > 0 && g.number <= len(all) {
			q.Delivery = all[g.number-1]
		}
	}
	v, d := decide(s.w, conv, fence.RunKey{}, func(view fence.View) (fence.SettleVerdict, fence.Change) {
		return s.w.rules.Settle(view, q)
	})
	s.learn(v.Delivery)
	return s.tell(v, d)
}

func (s *stage) catchUp(a *args) string {
	conv := a.text("conv", "c")
	q := fence.CatchUpRequest{Identity: s.w.identity(conv), Delivery: s.delivery(a)}
	v, d := decide(s.w, conv, fence.RunKey{}, func(view fence.View) (fence.CatchUpVerdict, fence.Change) {
		return s.w.rules.CatchUp(view, q)
	})
	s.learn(v.Delivery)
	return s.tell(v, d)
}

func (s *stage) advance(a *args) string {
	if len(a.have) == 0 {
		panic(wrongf("advance needs a duration"))
	}
	by := a.have[0].Key
	a.find(by)
	s.w.now += millisOf(by)
	return "it is +" + (s.w.now - start).Duration().String()
}

// save and restore are a store that fails over and loses what it had acknowledged.
func (s *stage) save(*args) string {
	s.saved = newWorld(s.w.rules)
	for name, c := range s.w.convs {
		copied := *c
		s.saved.convs[name] = &copied
	}
	s.saved.homes = maps.Clone(s.w.homes)
	return "ok"
}

func (s *stage) restore(*args) string {
	s.w.convs, s.w.homes = s.saved.convs, s.saved.homes
	return "ok"
}
