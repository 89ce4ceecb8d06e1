// Command bench measures what an effect costs with fencedrun, against what somebody would write
// by hand and against DBOS Transact. It needs a Postgres and a Redis that nobody else uses, which
// internal/services starts:
//
//	make bench
//
// It prints a table, and with -docs writes it into docs/performance.md, and a picture of it into
// docs/performance.svg.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/signal"
	"path/filepath"
	"regexp"
	"runtime/pprof"
	"slices"
	"time"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := run(ctx)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(ctx context.Context) error {
	var (
		total = flag.Duration("time", 5*time.Minute, "how long to measure, without preparations")
		docs  = flag.String("docs", "", "`folder` of performance.md and performance.svg, to be written anew")
		seed  = flag.Uint64("seed", 1, "of the order in which things are measured")
		only  = flag.String("run", "", "measure only what matches this `regexp`, such as '^Once, 32 workers$', and write no documents")
		cpu   = flag.String("cpuprofile", "", "write a profile of the measurements to this `file`")
	)
	flag.Parse()
	if flag.NArg() > 0 {
		return fmt.Errorf("bench: unexpected argument %q", flag.Arg(0))
	}
	chosen, err := regexp.Compile(*only)
	if err != nil {
		return fmt.Errorf("bench: -run: %w", err)
	}
	if *only != "" {
		*docs = ""
	}

	w, err := newWorld(ctx)
	if err != nil {
		return fmt.Errorf("bench: prepare: %w", err)
	}
	defer w.close()
	variants, err := w.variants(ctx)
	if err != nil {
		return fmt.Errorf("bench: prepare: %w", err)
	}
	variants = slices.DeleteFunc(variants, func(v *variant) bool { return !chosen.MatchString(v.name) })

	if *cpu != "" {
		file, err := os.Create(*cpu)
		if err != nil {
			return fmt.Errorf("bench: -cpuprofile: %w", err)
		}
		defer file.Close()
		if err := pprof.StartCPUProfile(file); err != nil {
			return fmt.Errorf("bench: -cpuprofile: %w", err)
		}
		defer pprof.StopCPUProfile()
	}
	random := rand.New(rand.NewPCG(*seed, 0))
	begun := time.Now()
	fmt.Fprintf(os.Stderr, "bench: one at a time, for %v\n", *total/2)
	if err := measure(ctx, random, variants, w.flush, *total/2); err != nil {
		return fmt.Errorf("bench: %w", err)
	}
	fmt.Fprintf(os.Stderr, "bench: side by side, for %v\n", *total/2)
	blocks, err := w.blocks(ctx) // not earlier: DBOS has work of its own in the background
	if err != nil {
		return fmt.Errorf("bench: prepare: %w", err)
	}
	blocks = slices.DeleteFunc(blocks, func(b *block) bool { return !chosen.MatchString(b.title()) })
	if err := load(ctx, random, blocks, w.flush, *total/2); err != nil {
		return fmt.Errorf("bench: %w", err)
	}
	r := report{variants: variants, blocks: blocks, where: w.where(ctx, time.Since(begun))}
	if err := r.markdown(os.Stdout); err != nil {
		return err
	}
	if *docs == "" {
		return nil
	}
	return errors.Join(r.writeInto(filepath.Join(*docs, "performance.md")), r.plot(filepath.Join(*docs, "performance.svg")))
}
