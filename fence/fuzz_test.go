package fence_test

import (
	"cmp"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/fencedrun/fencedrun/fence"
	"github.com/fencedrun/fencedrun/internal/race"
	"github.com/fencedrun/fencedrun/internal/sabotage"
)

// storyRules make leases, deadlines and retention meet within one story.
func storyRules() fence.Rules {
	return fence.Rules{Lease: 30_000, Quiet: 120_000, Retention: 30 * 60 * 1000, MaxCalls: 2}
}

// FuzzOperations plays random stories. A corpus entry is the choices of one story.
func FuzzOperations(f *testing.F) {
	f.Add([]byte{})
	f.Add(bytesOf(1, 90))
	for seed := range uint64(5) {
		f.Add(bytesOf(seed, 160))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		if len(data) > 2000 {
			t.Skip("too long to read")
		}
		s := newStory(storyRules(), &choices{data: data})
		s.w.careful = len(data) < 100
		if err := s.play(); err != nil {
			t.Fatal(shortest(data, storyRules(), err))
		}
	})
}

func bytesOf(seed uint64, n int) []byte {
	r := rand.New(rand.NewPCG(seed, 1))
	data := make([]byte, n)
	for i := range data {
		data[i] = byte(r.Uint32())
	}
	return data
}

// TestABoundedViewDecidesAsTheFullStateWould plays random stories in which every decision is
// made on a bounded and on the full view; see decide. What they show together is in the
// oracle: one call at a time, no message answered twice, no stale delivery, no stale view.
func TestABoundedViewDecidesAsTheFullStateWould(t *testing.T) {
	stories := 4000
	few := testing.Short() || race.Enabled
	if few {
		stories = 300
	}
	events, reasons := map[fence.EventKind]int{}, map[fence.Reason]int{}
	for seed := range uint64(stories) {
		data := bytesOf(seed, 40+int(seed%160))
		s := newStory(storyRules(), &choices{data: data})
		if err := s.play(); err != nil {
			t.Fatalf("story %d: %v", seed, shortest(data, storyRules(), err))
		}
		for k, n := range s.events {
			events[k] += n
		}
		for k, n := range s.reasons {
			reasons[k] += n
		}
	}
	t.Logf("events %v", events)
	t.Logf("refusals %v", reasons)
	for _, r := range []fence.Reason{
		fence.ReasonSuperseded, fence.ReasonConversationChanged, fence.ReasonAlreadyAnswered, fence.ReasonUnresolved, fence.ReasonInFlight,
		fence.ReasonAmbiguous, fence.ReasonCancelled, fence.ReasonEnded, fence.ReasonBusy, fence.ReasonExhausted, fence.ReasonTakenAgain,
	} {
		if reasons[r] == 0 && !few {
			t.Errorf("no story was refused as %s", r)
		}
	}
}

// shortest cuts a failing story down while it fails.
func shortest(data []byte, r fence.Rules, err error) error {
	play := func(data []byte) error {
		s := newStory(r, &choices{data: data})
		s.loud = true
		return s.play()
	}
	for cut := len(data) / 2; cut > 0; cut /= 2 {
		for at := 0; at+cut <= len(data); {
			less := slices.Concat(data[:at], data[at+cut:])
			if e := play(less); e != nil {
				data, err = less, e
				continue
			}
			at += cut
		}
	}
	return cmp.Or(play(data), err)
}

// TestStoriesNoticeWhatMatters plays stories with a rule switched off. Those whose absence
// breaks a promise of section 11 must be found by random stories, too.
func TestStoriesNoticeWhatMatters(t *testing.T) {
	t.Parallel()
	if race.Enabled || testing.Short() {
		t.Skip("many stories, and nothing concurrent in them")
	}
	for _, name := range []sabotage.Name{
		sabotage.LastCallDecides, sabotage.CommittedNotFinal, sabotage.NoSupersede, sabotage.ExclusiveNotExclusive, sabotage.PendingRetried,
		sabotage.AmbiguousRetried, sabotage.NoFence, sabotage.StaleDeliveryWrites, sabotage.NoConversationCheck, sabotage.UnresolvedIgnored,
		sabotage.UnresolvedBySeqOnly, sabotage.OwnEarlierCovered, sabotage.AnswersIgnored, sabotage.ExpiredBecomesFailed, sabotage.RefusalCatchesUp,
		sabotage.FenceStands, sabotage.LateOverwrites, sabotage.ResolveWhilePending, sabotage.EndUnchecked, sabotage.OldEndEndsNew,
		sabotage.EndedWrites, sabotage.CancelledWrites, sabotage.LeaseLossRetries, sabotage.PayloadIsFresh, sabotage.ReportsRepeat,
		sabotage.ViewSharedByDeliveries, sabotage.SupersededIsFinal, sabotage.NeverLapses, sabotage.RedeliveryIsNewRun, sabotage.UsedLeaseForgiven,
		sabotage.ProbesEarly, sabotage.NotFoundBelieved, sabotage.ProbesCrowd, sabotage.OldProbeCounts,
	} {
		t.Run(name.String(), func(t *testing.T) {
			t.Parallel()
			for seed := range uint64(4000) {
				s := newStory(storyRules().Without(sabotage.Of(name)), &choices{data: bytesOf(seed, 160)})
				s.w.quick = true
				if err := s.play(); err != nil {
					if testing.Verbose() {
						t.Logf("story %d: %s", seed, strings.SplitN(err.Error(), "\n", 2)[0])
					}
					return
				}
			}
			t.Errorf("no story notices: %s", name.Does())
		})
	}
}
