package experiment

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"github.com/sluice-net/sluice/internal/tasks"
	"github.com/sluice-net/sluice/lab"
	"github.com/sluice-net/sluice/lab/delayline"
	"github.com/sluice-net/sluice/lab/testbed"
	"github.com/sluice-net/sluice/services/cinema"
	"github.com/sluice-net/sluice/services/cinema/gatewayapi"
)

const (
	// delayGoal bounds the median age of a picture when it is seen.
	delayGoal = 150 * time.Millisecond
	// delaySettle is how long the player runs before pictures are measured.
	delaySettle = 3 * time.Second
	// delayNear bounds the time between a packet at the egress gateway and in the browser of which the
	// two are assumed to be of one picture when their timestamps are compared.
	delayNear = 100 * time.Millisecond
	// stampError is the largest error of timestamps that a page reports, in units of 1/90000 s.
	stampError = 90
)

func cinemaDelay() Experiment {
	return Experiment{
		Name:     "cinema-delay",
		Title:    "The time from glass to glass, and where it goes",
		Question: "How old is a picture when a viewer sees it, and which part of the way takes how long?",
		Varies:   []string{"player", "rate"},
		Run:      runCinemaDelay,
	}
}

// delayStages lists the stages of a picture's way.
var delayStages = []string{"encoder", "pacer", "network", "egress gateway", "decoder", "display"}

// delayTimes holds the times of one picture: when it was drawn, and when each of the stages had passed.
type delayTimes [7]time.Time

func runCinemaDelay(ctx context.Context, env *Env) (*Result, error) {
	raw, err := env.CSV("pictures", append([]string{"player", "rate", "number"}, delayStages...)...)
	if err != nil {
		return nil, err
	}
	defer raw.Close()
	players, err := chosen(env.Only, "player", zapPlayers, func(p string) string { return p })
	if err != nil {
		return nil, err
	}
	rates, err := chosen(env.Only, "rate", []int{30, 60}, strconv.Itoa)
	if err != nil {
		return nil, err
	}
	env.Steps(len(players) * len(rates))
	r := &Result{Network: "a ring of four switches with links of 2 ms, two ingress and two egress gateways; Chromium without a window at the egress gateway's switch; one test pattern of 640x360 and 1 Mbit/s, with key frames every 2 s"}
	budget := Table{Title: "From glass to glass, in ms: medians of each stage, and of all", Columns: slices.Concat([]string{"player", "pictures per second", "pictures"}, delayStages, []string{"all", "all: p95"})}
	for _, player := range players {
		for _, rate := range rates {
			env.Step("%s, %d pictures per second", player, rate)
			seen, err := env.delays(ctx, player, rate)
			if err != nil {
				return nil, fmt.Errorf("%s at %d pictures per second: %w", player, rate, err)
			}
			row, all := []any{player, rate, len(seen)}, delayMS(seen, 0, len(delayStages))
			for i := range delayStages {
				row = append(row, ms1(median(delayMS(seen, i, i+1))))
			}
			budget.Add(append(row, ms1(median(all)), ms1(quantile(all, 0.95)))...)
			r.Claim(median(all) <= inMS(delayGoal), fmt.Sprintf("%s at %d pictures per second: at most %v, median", player, rate, delayGoal), "%.1f ms", median(all))
			for n, x := range seen {
				values := []any{player, rate, n + 1}
				for i := range delayStages {
					values = append(values, x[i+1].Sub(x[i]))
				}
				if err := raw.Row(values...); err != nil {
					return nil, err
				}
			}
		}
	}
	r.Tables = append(r.Tables, budget)
	r.Note("Encoder: from when ffmpeg drew the picture, read from a clock in it to 2 ms, until the ingress gateway had its last packet from ffmpeg. Pacer: until the gateway sent that packet. Network: until it arrived at the egress gateway.")
	r.Note("Egress gateway: until the browser had all of the picture; with the viewer's line. Decoder: until Chromium had decoded it, with its jitter buffer. Display: until the page looked at what was shown, after the next of Chromium's 60 frames a second.")
	r.Note("Medians of stages do not add up exactly to the median of all.")
	return r, nil
}

// delayMS returns how long pictures took from one stage to another, in ms.
func delayMS(seen []delayTimes, from, to int) (ms []float64) {
	for _, x := range seen {
		ms = append(ms, inMS(x[to].Sub(x[from])))
	}
	return ms
}

// delays measures the pictures that a player shows.
func (e *Env) delays(ctx context.Context, player string, rate int) (seen []delayTimes, err error) {
	top, roles := testbed.CinemaNetwork("delay", delayline.Params{Rate: 100e6, Delay: 2 * time.Millisecond})
	err = e.withLab(ctx, top, func(ctx context.Context, l *lab.Lab) (err error) {
		d, err := testbed.Deploy(ctx, testbed.Options{Lab: l, Binary: e.Binary, LogDir: e.Dir, Gateways: roles})
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, d.Close()) }()
		c := cinema.ChannelSpec{Name: "c1", Number: 1, Source: gatewayapi.StoredSource(fmt.Sprintf("test:?rate=%d", rate)), BitRate: zapBitRate, Ingress: "in1"}
		if err := d.AddChannel(ctx, c); err != nil {
			return err
		}
		if err := d.WaitOnAir(ctx); err != nil {
			return err
		}
		seen, err = watchDelays(ctx, d, l, filepath.Join(e.Dir, "chromium.log"), player, pick(e.Scale, 10*time.Second, 30*time.Second, time.Minute), rate)
		return err
	})
	return seen, err
}

func watchDelays(ctx context.Context, d *testbed.Deployment, l *lab.Lab, log, player string, watched time.Duration, rate int) (seen []delayTimes, err error) {
	var passed [3]*testbed.PicturePackets
	for i, at := range []struct{ host, device string }{{"in1", "lo"}, {"in1", "eth0"}, {"out2", "eth0"}} {
		if passed[i], err = testbed.WatchPicturePackets(l.Host(at.host), at.device); err != nil {
			return nil, err
		}
		defer passed[i].Close()
	}
	site := d.PublicURL("out2")
	b, err := testbed.StartBrowser(ctx, l.Host(testbed.Viewer), log, "unsafely-treat-insecure-origin-as-secure="+site)
	if err != nil {
		return nil, err
	}
	defer b.Close()
	if err := b.WatchDecoder(ctx); err != nil {
		return nil, err
	}
	if err := b.Open(ctx, site+"/?player="+player+"#c1"); err != nil {
		return nil, err
	}
	if err := b.WatchPictures(ctx); err != nil {
		return nil, err
	}
	if err := b.Shows(ctx, 1); err != nil {
		return nil, err
	}
	if err := tasks.Sleep(ctx, delaySettle+watched); err != nil {
		return nil, err
	}
	pictures, err := b.LastPictures(ctx, int(watched.Seconds()*float64(rate)))
	if err != nil {
		return nil, err
	}
	seen = joinDelays(pictures, passed[0].Passed(), passed[1].Passed(), passed[2].Passed())
	if len(seen) < len(pictures)/2 || len(seen) == 0 {
		return nil, fmt.Errorf("of %d pictures that were seen, only %d were recognised on their way", len(pictures), len(seen))
	}
	return seen, nil
}

// joinDelays finds the packets of each picture that was seen. encoded, sent and arrived hold when packets
// came from ffmpeg, left the ingress gateway, and came to the egress gateway. That gateway gives pictures
// other timestamps, which differ by the same number for all of them. joinDelays finds this number first.
func joinDelays(pictures []testbed.SeenPicture, encoded, sent, arrived map[testbed.PictureID]time.Time) (out []delayTimes) {
	byTime := slices.SortedFunc(maps.Keys(arrived), func(a, b testbed.PictureID) int { return arrived[a].Compare(arrived[b]) })
	votes := map[uint32]int{} // by the number, in units of stampError
	for _, p := range pictures {
		i, _ := slices.BinarySearchFunc(byTime, p.Received, func(id testbed.PictureID, at time.Time) int { return arrived[id].Compare(at) })
		if i > 0 && p.Received.Sub(arrived[byTime[i-1]]) < delayNear {
			votes[(p.Stamp-byTime[i-1].Timestamp)/stampError]++
		}
	}
	if len(votes) == 0 {
		return nil
	}
	most := slices.MaxFunc(slices.Collect(maps.Keys(votes)), func(a, b uint32) int { return cmp.Compare(votes[a], votes[b]) }) * stampError
	for _, p := range pictures {
		for _, id := range byTime {
			off := int32(p.Stamp - most - id.Timestamp)
			if off < -2*stampError || off > 2*stampError || encoded[id].IsZero() || sent[id].IsZero() {
				continue
			}
			out = append(out, delayTimes{p.Drawn, encoded[id], sent[id], arrived[id], p.Received, p.Decoded, p.Seen})
			break
		}
	}
	return out
}
