package experiment

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/sluice-net/sluice/lab/testbed"
	"github.com/sluice-net/sluice/services/sos"
)

// sessionsLine is a link between two cities.
var sessionsLine = line{Rate: 1e9, RTT: 20 * time.Millisecond, MTU: 9000}

func sosSessions() Experiment {
	return Experiment{
		Name:     "sos-sessions",
		Title:    "Many sessions at once",
		Question: "How fast are sessions set up, and do many at once all end with the right bytes?",
		Run:      runSessions,
	}
}

// crowd is a number of files of one size that are all downloaded at once.
type crowd struct {
	name  string
	count int
	size  int64
}

func runSessions(ctx context.Context, env *Env) (*Result, error) {
	crowds := pick(env.Scale,
		[]crowd{{"small", 100, 4 << 10}, {"large", 10, 2 << 20}},
		[]crowd{{"small", 1000, 4 << 10}, {"large", 100, 10 << 20}},
		[]crowd{{"small", 1000, 4 << 10}, {"large", 100, 50 << 20}})
	raw, err := env.CSV("sessions", "crowd", "session", "start_seconds", "setup_seconds", "bytes_down", "how")
	if err != nil {
		return nil, err
	}
	defer raw.Close()
	env.Steps(len(crowds))
	r := &Result{Network: "two switches, " + sessionsLine.String()}
	table := Table{
		Title:   "Downloads at once, each a connection and a session of its own",
		Columns: []string{"files", "size", "set up", "all set up within", "set-up median", "p99", "all done within", "goodput", "right checksums"},
	}
	err = env.withSite(ctx, twoSites("sessions", sessionsLine, 1), func(ctx context.Context, s *site) error {
		for _, c := range crowds {
			env.Step("%d files of %d bytes at once", c.count, c.size)
			o, err := c.download(ctx, env, s)
			if err != nil {
				return fmt.Errorf("%s files: %w", c.name, err)
			}
			o.report(r, &table, c)
			if err := o.save(raw, c); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	r.Tables = []Table{table}
	return r, nil
}

// crowdOutcome holds the results of a crowd.
type crowdOutcome struct {
	records []sos.Record
	took    time.Duration
	right   int
	failed  error // error of curl
}

// endings returns the numbers of sessions by the reason for their end.
func (o crowdOutcome) endings() string {
	count := map[string]int{}
	for _, r := range o.records {
		count[r.How]++
	}
	var all []string
	for how, n := range count {
		all = append(all, fmt.Sprintf("%d %s", n, how))
	}
	slices.Sort(all)
	return strings.Join(all, ", ")
}

func (c crowd) download(ctx context.Context, env *Env, s *site) (o crowdOutcome, err error) {
	dir, err := os.MkdirTemp("", "sluice-crowd-")
	if err != nil {
		return o, err
	}
	defer os.RemoveAll(dir)
	served, got, logs := filepath.Join(dir, "served"), filepath.Join(dir, "got"), filepath.Join(env.Dir, "server-"+c.name)
	for _, d := range []string{served, got, logs} {
		if err := os.MkdirAll(d, 0o755); err != nil {
			return o, err
		}
	}
	urls, err := c.makeFiles(served, s.lab.Host("server").Addr().String())
	if err != nil {
		return o, err
	}
	web, err := testbed.StartWebServer(ctx, s.lab.Host("server"), served, logs, webPort)
	if err != nil {
		return o, err
	}
	defer web.Stop()
	entry, err := s.Whitelist(ctx, s.lab.Host("server").Addr(), webPort, sos.Tuning{})
	if err != nil {
		return o, err
	}
	began := time.Now()
	o.failed = testbed.CurlMany(ctx, s.lab.Host("client"), urls, got)
	if ctx.Err() != nil {
		return o, o.failed
	}
	o.took = time.Since(began)
	if o.right, err = sameFiles(served, got, c.count); err != nil {
		return o, err
	}
	if err := s.Unlist(ctx, entry); err != nil {
		return o, err
	}
	o.records, err = s.endedSince(ctx, began)
	return o, err
}

// endedSince waits until no session is live, and returns those that have begun since.
func (s *site) endedSince(ctx context.Context, began time.Time) (since []sos.Record, err error) {
	err = testbed.Poll(ctx, "the sessions' end", func() error {
		all, err := s.Sessions(ctx)
		since = since[:0]
		for _, r := range all {
			if r.State != sos.StateEnded {
				return fmt.Errorf("a session is %s", r.State)
			}
			if r.Started.After(began) {
				since = append(since, r)
			}
		}
		return err
	})
	return since, err
}

func (c crowd) makeFiles(dir, server string) (urls []string, err error) {
	for i := range c.count {
		if err := randomFile(filepath.Join(dir, fmt.Sprint(i)), c.size); err != nil {
			return nil, err
		}
		urls = append(urls, fmt.Sprintf("http://%s:%d/%d", server, webPort, i))
	}
	return urls, nil
}

// randomFile makes a file of size random bytes.
func randomFile(path string, size int64) error {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	_, err = io.CopyN(f, rand.Reader, size)
	return errors.Join(err, f.Close())
}

// sameFiles counts the files whose SHA-256 is the same in both folders.
func sameFiles(a, b string, count int) (same int, err error) {
	for i := range count {
		first, err := fileSum(filepath.Join(a, fmt.Sprint(i)))
		if err != nil {
			return 0, err
		}
		second, err := fileSum(filepath.Join(b, fmt.Sprint(i)))
		if errors.Is(err, fs.ErrNotExist) {
			continue // the file has not arrived
		}
		if err != nil {
			return 0, err
		}
		if bytes.Equal(first, second) {
			same++
		}
	}
	return same, nil
}

func fileSum(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	h := sha256.New()
	if _, err := io.Copy(h, f); err != nil {
		return nil, err
	}
	return h.Sum(nil), nil
}

func (o crowdOutcome) report(r *Result, table *Table, c crowd) {
	var setups []float64
	var first, last time.Time
	for _, rec := range o.records {
		if rec.Setup.Total == 0 {
			continue
		}
		setups = append(setups, time.Duration(rec.Setup.Total).Seconds())
		if first.IsZero() || rec.Started.Before(first) {
			first = rec.Started
		}
		if done := rec.Started.Add(time.Duration(rec.Setup.Total)); done.After(last) {
			last = done
		}
	}
	within := last.Sub(first)
	goodput := float64(c.count) * float64(c.size) * 8 / o.took.Seconds()
	table.Add(c.count, c.size, len(setups), within.Round(time.Millisecond), fmt.Sprintf("%.0f ms", 1000*median(setups)),
		fmt.Sprintf("%.0f ms", 1000*quantile(setups, 0.99)), o.took.Round(time.Millisecond), fmt.Sprintf("%.0f Mbit/s", goodput/1e6), o.right)
	r.Claim(o.right == c.count && len(setups) == c.count,
		fmt.Sprintf("%d %s files carried by sessions of their own, all with the right checksum", c.count, c.name), "%d sessions, %d right; ended: %s", len(setups), o.right, o.endings())
	if o.failed != nil {
		r.Note("Some of the %s files did not arrive: %v", c.name, o.failed)
	}
	if c.name == "small" {
		r.Claim(within <= 10*time.Second, fmt.Sprintf("%d sessions set up within 10 s", c.count), "%.2f s", within.Seconds())
	}
}

func (o crowdOutcome) save(raw *CSV, c crowd) error {
	for i, rec := range o.records {
		if err := raw.Row(c.name, i, rec.Started.Sub(o.records[0].Started), time.Duration(rec.Setup.Total), rec.BytesDown, rec.How); err != nil {
			return err
		}
	}
	return nil
}
