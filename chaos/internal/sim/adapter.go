package sim

import (
	"context"
	"encoding/json"
	"errors"
	"strconv"
	"time"

	"github.com/hibiken/asynq"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/rivertype"

	asynqruns "github.com/fencedrun/fencedrun/adapters/asynq"
	riverruns "github.com/fencedrun/fencedrun/adapters/river"
	"github.com/fencedrun/fencedrun/fence"
	"github.com/fencedrun/fencedrun/internal/seam"
	"github.com/fencedrun/fencedrun/runs"
)

// The adapters' own code, called as the queues call it. Only what a queue makes of the answer
// is a model, after the released sources of both.

// adapters are a process's, by how its handlers read.
type adapters struct {
	asynq map[manner]*asynqruns.Adapter
	wired map[manner]asynq.Config
	river map[manner]*riverruns.Plugin
}

// manner is what an adapter is configured by.
type manner struct {
	reads      runs.Reads
	replayOnly bool
}

func (j *job) manner() manner { return manner{j.reads(), j.h.ReplayOnly} }

// queueKey is the queue part of a run's key.
func (w *World) queueKey() string {
	switch {
	case !w.adapted:
		return "sim"
	case w.asynq:
		return "asynq:q"
	}
	return "river:public"
}

func (j *job) reads() runs.Reads {
	if j.h.Payload {
		return runs.FromPayload
	}
	return runs.AfterBegin
}

func (p *proc) asynqAdapter(j *job) (*asynqruns.Adapter, asynq.Config) {
	reads := j.manner()
	if p.adapters.asynq == nil {
		p.adapters.asynq = map[manner]*asynqruns.Adapter{}
		p.adapters.wired = map[manner]asynq.Config{}
	}
	a := p.adapters.asynq[reads]
	if a == nil {
		var err error
		a, err = asynqruns.New(p.keeper, &asynqruns.Config{Inbound: asynqruns.FromHeaders, Reads: j.reads(), Mode: p.w.cfg.Mode, ReplayOnly: j.h.ReplayOnly})
		if err != nil {
			panic(err)
		}
		p.adapters.asynq[reads] = a
		p.adapters.wired[reads] = a.Config(asynq.Config{RetryDelayFunc: func(int, error, *asynq.Task) time.Duration { return 30 * time.Second }})
	}
	return a, p.adapters.wired[reads]
}

func (p *proc) riverPlugin(j *job) *riverruns.Plugin {
	reads := j.manner()
	if p.adapters.river == nil {
		p.adapters.river = map[manner]*riverruns.Plugin{}
	}
	plugin := p.adapters.river[reads]
	if plugin == nil {
		var err error
		plugin, err = riverruns.NewPlugin(p.keeper, &riverruns.Config{Inbound: riverruns.FromArgs, Reads: j.reads(), Mode: p.w.cfg.Mode, ReplayOnly: j.h.ReplayOnly})
		if err != nil {
			panic(err)
		}
		p.adapters.river[reads] = plugin
	}
	return plugin
}

// adaptedWork is what the queue's server does with a job.
func (w *World) adaptedWork(queue context.Context, t *task, d *delivery) {
	j := d.j
	j.calls++
	digest := j.digest
	conv := j.conv()
	var h *hand
	inner := func(ctx context.Context) error {
		h = &hand{t: t, w: w, ctx: ctx, run: runs.FromContext(ctx), j: j, digest: digest, conv: conv, replays: new([]*send)}
		h.delivery = h.run.Delivery()
		w.entered(h)
		if conv != "c" {
			return nil
		}
		defer func() { h.over = true }() // also by a panic
		return j.h.run(h)
	}
	var err error
	if w.asynq {
		err = w.throughAsynq(queue, d, conv, inner)
	} else {
		err = w.throughRiver(queue, d, conv, inner)
	}
	v := verdictIn(err, h != nil)
	if v.Action == runs.ActionDone {
		// A queue is told the same for a job that is done and for one that is dropped.
		if view, ok := w.peek(w.runRow(j), fence.InboundRow(messageID(j.msg))); ok {
			if run, _ := view.Rows[w.runRow(j)].(*fence.Run); run == nil || !run.Finished() {
				v.Action = runs.ActionDrop
			}
		}
	}
	w.cov.verdict(v)
	if v.Reason == "superseded" && v.Action != runs.ActionStale && !w.rightlySuperseded(j) && w.tally.Lost == 0 {
		w.fail("peers", "%s is superseded and no newer job of its source exists", j.id)
	}
	w.concluded(t, j, h, digest, v)
	if w.asynq {
		w.asynqTakes(t, d, err)
	} else {
		w.riverTakes(queue, t, d, err)
	}
}

// verdictIn finds the library's verdict in what an adapter handed to the queue.
func verdictIn(err error, entered bool) runs.Verdict {
	var verdict *runs.VerdictError
	var snooze *river.JobSnoozeError
	switch {
	case err == nil && entered:
		return runs.Verdict{Action: runs.ActionDone}
	case err == nil:
		return runs.Verdict{Action: runs.ActionDrop}
	case errors.As(err, &snooze):
		return runs.Verdict{Action: runs.ActionComeBack, After: snooze.Duration}
	case errors.As(err, &verdict):
		return runs.Verdict{Action: verdict.Action, Reason: verdict.Reason, After: verdict.After, Err: err}
	}
	return runs.Verdict{Action: runs.ActionReturn, Err: err}
}

func (w *World) throughAsynq(queue context.Context, d *delivery, conv string, inner func(context.Context) error) error {
	j := d.j
	a, _ := d.p.asynqAdapter(j)
	if j.envelope.conv != conv {
		j.envelope.conv, j.envelope.headers = conv, j.headers(conv)
	}
	task := asynq.NewTaskWithHeaders("reply", []byte(j.digest), j.envelope.headers)
	ctx := seam.WithDelivery(queue, seam.Delivery{TaskID: j.id, Queue: "q", Retried: j.tries - 1, MaxRetry: w.attempts - 1})
	return protect(func() error {
		return a.Middleware(asynq.HandlerFunc(func(ctx context.Context, _ *asynq.Task) error { return inner(ctx) })).ProcessTask(ctx, task)
	})
}

// envelope is what a job carries beside its payload, as its producer made it.
type envelope struct {
	conv     string // for which it was made
	headers  map[string]string
	metadata []byte
}

func (j *job) headers(conv string) map[string]string {
	c := asynqruns.Conversation{ID: conv, Inbound: messageNames[j.msg : j.msg+1], Order: j.order, Nonce: j.id + "-" + messageID(j.msg), Stamp: j.stamp}
	if j.h.NoInbound {
		c.Inbound, c.NoInbound = nil, true
	}
	headers, err := asynqruns.Headers(c)
	if err != nil {
		panic(err)
	}
	return headers
}

// asynqTakes follows processor.handleFailedMessage: a skip or the last retry archives, before
// it is asked whether the error is a failure at all.
func (w *World) asynqTakes(t *task, d *delivery, err error) {
	j := d.j
	if err == nil {
		w.ack(t, d, "done", func() { j.end(acked, "") })
		return
	}
	_, config := d.p.asynqAdapter(j)
	failure := config.IsFailure(err)
	delay := config.RetryDelayFunc(j.tries, err, nil)
	w.ack(t, d, "error", func() {
		v := verdictIn(err, true)
		reason := string(v.Reason)
		switch {
		case errors.Is(err, asynq.SkipRetry):
			w.stopped(j, v)
		case j.tries >= w.attempts:
			j.end(discarded, reason)
		default:
			if !failure {
				j.tries--
				j.snoozes++
			}
			j.again(w.now+int64(delay), reason)
		}
	})
}

func (w *World) stopped(j *job, v runs.Verdict) {
	if v.Action == runs.ActionPark {
		j.end(parked, string(v.Reason))
	} else {
		j.end(discarded, string(v.Reason))
	}
}

func (w *World) throughRiver(queue context.Context, d *delivery, conv string, inner func(context.Context) error) error {
	j := d.j
	if j.envelope.conv != conv {
		j.envelope.conv, j.envelope.metadata = conv, j.metadata(conv)
	}
	id, err := strconv.ParseInt(j.id, 10, 64)
	if err != nil {
		panic(err)
	}
	at := w.db.clock()
	row := &rivertype.JobRow{
		ID: id, Attempt: j.tries, MaxAttempts: w.attempts, AttemptedAt: &at, Kind: "reply", Queue: "default",
		EncodedArgs: []byte(strconv.Quote(j.digest)), Metadata: j.envelope.metadata, State: rivertype.JobStateRunning,
	}
	return protect(func() error { return d.p.riverPlugin(j).Work(queue, row, inner) })
}

func (j *job) metadata(conv string) []byte {
	envelope := map[string]any{"conversation": conv, "inbound": messageNames[j.msg : j.msg+1], "nonce": messageID(j.msg)}
	if j.h.NoInbound {
		delete(envelope, "inbound")
		envelope["no_inbound"] = true
	}
	if j.order.Source != "" {
		envelope["source"], envelope["number"] = j.order.Source, j.order.Number
	}
	if j.stamp != 0 {
		envelope["as_of"] = j.stamp
	}
	metadata, err := json.Marshal(map[string]any{"fencedrun:job": envelope})
	if err != nil {
		panic(err)
	}
	return metadata
}

// riverTakes follows JobExecutor.reportResults and reportError.
func (w *World) riverTakes(queue context.Context, t *task, d *delivery, err error) {
	j := d.j
	var snooze *river.JobSnoozeError
	var cancel *river.JobCancelError
	_, alone := err.(interface {
		Jobs() []*rivertype.JobRow
		ErrorsByID() map[int64]error
	})
	v := verdictIn(err, true)
	switch {
	case alone:
		d.gone = true
		w.rescue(j, d)
	case err == nil:
		w.ack(t, d, "done", func() { j.end(acked, "") })
	case errors.As(err, &snooze):
		w.ack(t, d, "snooze", func() {
			j.tries--
			j.snoozes++
			j.again(w.now+int64(snooze.Duration), string(v.Reason))
		})
	case queue.Err() != nil && errors.Is(err, context.Canceled):
		w.ack(t, d, "soft stop", func() {
			j.tries = max(j.tries-1, 0)
			j.again(w.now, "soft stop")
		})
	case errors.As(err, &cancel):
		w.ack(t, d, "cancel", func() { w.stopped(j, v) })
	default:
		w.retry(t, d, string(v.Reason))
	}
}
