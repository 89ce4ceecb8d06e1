package redisledger

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"
)

// Wait asks Redis to answer only once a change is in more than one place.
type Wait struct {
	// Local is 1 to wait until the server itself has flushed the change to its append-only
	// file, 0 not to. It needs WAITAOF.
	Local int
	// Replicas is how many replicas must have the change: in memory with Config.Wait, flushed
	// to their append-only files with Config.WaitAOF.
	Replicas int
	// Timeout is how long to wait, in whole milliseconds. Then the change fails, although it is
	// written: its effect is not called before it is known to be as safe as this asks. It
	// must be shorter than the client's ReadTimeout. Defaults to 1 second.
	Timeout time.Duration
}

const defaultWait = time.Second

// waits reports whether durable changes are waited for.
func (s *Store) waits() bool { return s.config.Wait != nil || s.config.WaitAOF != nil }

// durably runs a script that writes, and waits as the Config asks. WAIT waits for what its own
// connection wrote, so the two go through one: in one pipeline to the node that has the key.
func (s *Store) durably(ctx context.Context, sc *redis.Script, keys []string, args ...any) (any, error) {
	if !s.waits() {
		return s.run(ctx, sc, keys, args...)
	}
	const tries = 5
	for n := 1; ; n++ {
		answer, err := s.onNode(ctx, sc, keys, args)
		if s.cluster == nil || n == tries || !moved(err) {
			return answer, err
		}
		// The slot lives elsewhere by now, and nothing was written. The client asks the Cluster again,
		// but not more often than every 200 milliseconds.
		s.cluster.ReloadState(ctx)
		if err := s.seam.Sleep(ctx, time.Duration(n)*50*time.Millisecond); err != nil {
			return nil, err
		}
	}
}

func moved(err error) bool {
	return redis.HasErrorPrefix(err, "MOVED") || redis.HasErrorPrefix(err, "ASK") || redis.HasErrorPrefix(err, "TRYAGAIN")
}

func (s *Store) onNode(ctx context.Context, sc *redis.Script, keys []string, args []any) (any, error) {
	var node interface {
		Pipelined(ctx context.Context, fn func(redis.Pipeliner) error) ([]redis.Cmder, error)
	} = s.client
	if s.cluster != nil {
		master, err := s.cluster.MasterForKey(ctx, keys[0])
		if err != nil {
			return nil, err
		}
		node = master
	}
	for _, known := range []bool{true, false} {
		var cmd *redis.Cmd
		var replicas *redis.IntCmd
		var flushed *redis.IntSliceCmd
		_, err := node.Pipelined(ctx, func(p redis.Pipeliner) error {
			if known {
				cmd = sc.EvalSha(ctx, p, keys, args...)
			} else {
				cmd = sc.Eval(ctx, p, keys, args...)
			}
			if w := s.config.Wait; w != nil {
				replicas = redis.NewIntCmd(ctx, "wait", w.Replicas, w.Timeout.Milliseconds())
				_ = p.Process(ctx, replicas)
			}
			if w := s.config.WaitAOF; w != nil {
				flushed = redis.NewIntSliceCmd(ctx, "waitaof", w.Local, w.Replicas, w.Timeout.Milliseconds())
				_ = p.Process(ctx, flushed)
			}
			return nil
		})
		answer, one := cmd.Result()
		switch {
		case known && isUnknown(one):
			continue
		case one != nil:
			return nil, one
		case err != nil:
			return nil, err
		}
		return answer, s.waited(replicas, flushed)
	}
	return nil, errors.New("the server forgot a script at once")
}

func (s *Store) waited(replicas *redis.IntCmd, flushed *redis.IntSliceCmd) error {
	if w := s.config.Wait; w != nil && replicas.Val() < int64(w.Replicas) {
		return fmt.Errorf("%d of %d replicas had the change after %v (Config.Wait)", replicas.Val(), w.Replicas, w.Timeout)
	}
	if w := s.config.WaitAOF; w != nil {
		if got := flushed.Val(); len(got) != 2 || got[0] < int64(w.Local) || got[1] < int64(w.Replicas) {
			return fmt.Errorf("%v of [%d %d] append-only files had the change after %v (Config.WaitAOF)", got, w.Local, w.Replicas, w.Timeout)
		}
	}
	return nil
}

// A change that was written but not waited for is found by who tries again: a claim would then be
// taken for granted although nobody knows whether a replica has it. So the conversation stays in
// doubt, for this process, until a wait has succeeded; no other process can have been granted it.

func (s *Store) doubt(conversation string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.doubts[conversation]++
}

// reassure makes sure that what a conversation holds is as safe as the Config asks.
func (s *Store) reassure(ctx context.Context, conversation string) error {
	if !s.waits() {
		return nil
	}
	s.mu.Lock()
	doubted := s.doubts[conversation]
	s.mu.Unlock()
	if doubted == 0 {
		return nil
	}
	if _, err := s.durably(ctx, touchScript, s.conversationKeys(conversation)[:1]); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.doubts[conversation] == doubted { // else there was another meanwhile
		delete(s.doubts, conversation)
	}
	return nil
}

func (s *Store) durablyIf(ctx context.Context, durable bool, sc *redis.Script, keys []string, args ...any) (any, error) {
	if durable {
		return s.durably(ctx, sc, keys, args...)
	}
	return s.run(ctx, sc, keys, args...)
}
