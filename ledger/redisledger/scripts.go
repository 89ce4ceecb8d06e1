package redisledger

import (
	"context"
	"embed"
	"errors"

	"github.com/redis/go-redis/v9"
)

//go:embed lua/*.lua
var sources embed.FS

var (
	common = source("common")

	loadScript   = script("load")
	applyScript  = script("apply")
	touchScript  = script("touch")
	renewScript  = script("renew")
	findScript   = script("find")
	buryScript   = script("bury")
	moveScript   = script("move")
	backScript   = script("back")
	forgetScript = script("forget")
	exhumeScript = script("exhume")
	peekScript   = script("peek")
	rowsScript   = script("rows")
	listScript   = script("list")
)

func source(name string) string {
	text, err := sources.ReadFile("lua/" + name + ".lua")
	if err != nil {
		panic("redisledger: " + err.Error()) // it is compiled in
	}
	return string(text)
}

func script(name string) *redis.Script { return redis.NewScript(common + "\n" + source(name)) }

func isUnknown(err error) bool {
	return errors.Is(err, redis.ErrNoScript) || redis.HasErrorPrefix(err, "NOSCRIPT")
}

// Everything goes through scripts, reads too: a client may be set up to send plain reads to
// replicas, which lag, and a decision must not rest on what was true a moment ago.

// run runs one script; nil means that it answered nothing.
func (s *Store) run(ctx context.Context, sc *redis.Script, keys []string, args ...any) (any, error) {
	answer, err := sc.Run(ctx, s.client, keys, args...).Result()
	if errors.Is(err, redis.Nil) {
		return nil, nil
	}
	return answer, err
}

// ask is one call of a script.
type ask struct {
	keys []string
	args []any
}

// all runs one script with many keys and arguments, in one round trip for each server. A server
// that does not know the script is told it in a second one.
func (s *Store) all(ctx context.Context, sc *redis.Script, asks []ask) ([]any, error) {
	if len(asks) == 0 {
		return nil, nil
	}
	answers := make([]any, len(asks))
	which := make([]int, len(asks))
	for i := range which {
		which[i] = i
	}
	for _, known := range []bool{true, false} {
		cmds := make([]*redis.Cmd, len(which))
		_, err := s.client.Pipelined(ctx, func(p redis.Pipeliner) error {
			for i, n := range which {
				if known {
					cmds[i] = sc.EvalSha(ctx, p, asks[n].keys, asks[n].args...)
				} else {
					cmds[i] = sc.Eval(ctx, p, asks[n].keys, asks[n].args...)
				}
			}
			return nil
		})
		var unknown []int
		for i, n := range which {
			var one error
			switch answers[n], one = cmds[i].Result(); {
			case one == nil || errors.Is(one, redis.Nil):
			case known && isUnknown(one):
				unknown = append(unknown, n)
			default:
				return nil, one
			}
		}
		if err != nil && unknown == nil && !errors.Is(err, redis.Nil) {
			return nil, err
		}
		if which = unknown; which == nil {
			return answers, nil
		}
	}
	return nil, errors.New("the server forgot a script at once")
}
