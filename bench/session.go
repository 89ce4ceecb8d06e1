package main

import (
	"context"
	"fmt"
	"sync/atomic"

	"github.com/fencedrun/fencedrun/runs"
)

var serial atomic.Int64

// unique returns a name that nothing else has.
func unique(prefix string) string { return fmt.Sprintf("%s-%d", prefix, serial.Add(1)) }

// job is a job with one message on its conversation.
func job(conversation string) runs.Job {
	id := unique("job")
	return runs.Job{Queue: "bench", ID: id, Conversation: conversation, Inbound: []string{"message of " + id}, Reads: runs.AfterBegin}
}

func effect() runs.Effect { return runs.Effect{Intent: "tag", Key: runs.ID(unique("effect"))} }

// call is an effect that does nothing: what is measured is what surrounds it.
func call(context.Context, *runs.Call) error { return nil }

// session is a delivery that is under way, for measuring what happens inside of one.
type session struct {
	run  *runs.Run
	ctx  context.Context
	end  chan struct{}
	over chan error
}

func begin(ctx context.Context, k *runs.Keeper, conversation string) (*session, error) {
	s := &session{end: make(chan struct{}), over: make(chan error, 1)}
	begun := make(chan struct{})
	go func() {
		s.over <- k.Do(ctx, job(conversation), func(ctx context.Context) error {
			s.run, s.ctx = runs.FromContext(ctx), ctx
			close(begun)
			<-s.end
			return nil
		})
	}()
	select {
	case <-begun:
		return s, nil
	case err := <-s.over:
		return nil, fmt.Errorf("begin: %w", err)
	}
}

// close ends the delivery.
func (s *session) close() error {
	if s == nil {
		return nil
	}
	close(s.end)
	return <-s.over
}

func (s *session) once(e runs.Effect) error { return s.run.Once(s.ctx, e, call) }

// rotating gives out a session for many operations, and a new one, on a new conversation, after
// some: a conversation of a bench is no longer than one of life.
type rotating struct {
	keeper *runs.Keeper
	fresh  func(ctx context.Context) (conversation string, err error) // nil: a new one
	left   int
	*session
}

const opsPerConversation = 20

func (r *rotating) prepare(ctx context.Context) error {
	if r.left--; r.left > 0 {
		return nil
	}
	if err := r.close(); err != nil {
		return err
	}
	conversation := unique("conversation")
	if r.fresh != nil {
		var err error
		if conversation, err = r.fresh(ctx); err != nil {
			return err
		}
	}
	r.left = opsPerConversation
	var err error
	r.session, err = begin(ctx, r.keeper, conversation)
	return err
}

// prepareNew begins a new session, whatever is left of the last.
func (r *rotating) prepareNew(ctx context.Context) error {
	r.left = 0
	return r.prepare(ctx)
}

// all makes all the effects that a conversation is for.
func (r *rotating) all(ctx context.Context) error {
	for range opsPerConversation {
		if err := r.next(ctx); err != nil {
			return err
		}
	}
	return nil
}

func (r *rotating) next(context.Context) error { return r.once(effect()) }

// rotate returns a variant's prepare and op that make a new effect on k.
func rotate(k *runs.Keeper) (prepare, op func(context.Context) error) {
	r := &rotating{keeper: k}
	return r.prepare, r.next
}

// settled makes a conversation with n effects that happened, in a job that has ended.
func settled(ctx context.Context, k *runs.Keeper, n int) (string, error) {
	conversation := unique("conversation")
	s, err := begin(ctx, k, conversation)
	if err != nil {
		return "", err
	}
	for range n {
		if err := s.once(effect()); err != nil {
			return "", err
		}
	}
	return conversation, s.close()
}
