package experiment

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"path/filepath"
	"time"

	"github.com/chromedp/chromedp/kb"

	"github.com/sluice-net/sluice/internal/tasks"
	"github.com/sluice-net/sluice/lab"
	"github.com/sluice-net/sluice/lab/delayline"
	"github.com/sluice-net/sluice/lab/testbed"
	"github.com/sluice-net/sluice/services/cinema"
	"github.com/sluice-net/sluice/services/cinema/gatewayapi"
)

const (
	zapChannels = 4
	zapBitRate  = 1e6
	// zapMedian bounds the median time of a change of channel with a key frame every two seconds.
	// Without a burst it is added to the expected wait for a key frame.
	zapMedian = 60 * time.Millisecond
	zapSlow   = 150 * time.Millisecond
	zapFrozen = 70 * time.Millisecond
	zapHeard  = 80 * time.Millisecond
	zapAge    = 100 * time.Millisecond // bounds the median age of a picture a second after the change: the time of three pictures
	zapHeldTo = 2 * time.Second
	// zapSpread bounds the median without a burst: it is the number of standard deviations by which
	// the median may differ from what is expected. Without a burst a change waits for a time that
	// is uniform between 0 and the distance of key frames. The median of n such waits is expected
	// to be half of that distance, with a standard deviation of distance/(2*sqrt(n)).
	zapSpread = 3
)

func cinemaZap() Experiment {
	return Experiment{
		Name:     "cinema-zap",
		Title:    "The time of a change of channel in Chromium, over the distance of key frames",
		Question: "How long does a viewer wait for the picture of another channel, and what does it see meanwhile?",
		Source:   "dissertation 2017, table 6.3.1: GENI Cinema 2 s, digital television 4 s, satellite 6 s, Internet streaming 5 s, analogue television less than 1 s",
		Varies:   []string{"player", "keyframes"},
		Run:      runCinemaZap,
	}
}

// zapCase is one way to change channel.
type zapCase struct {
	player    string
	keyFrames time.Duration
	burst     bool
	// makeBeforeBreak shows the old channel until the new one has arrived.
	makeBeforeBreak bool
}

// zapColumns are the columns of the raw measurements.
var zapColumns = []string{"player", "key_frames_seconds", "burst", "make_before_break", "number", "zap_seconds", "gateway_seconds", "frozen_seconds", "heard_seconds", "wrong_pictures", "first_age_seconds", "last_age_seconds"}

// zapPlayers lists the players of the gateways' site.
var zapPlayers = []string{"webrtc", "websocket"}

func (c zapCase) String() string {
	burst := "without burst"
	if c.burst {
		burst = "with burst"
	}
	if !c.makeBeforeBreak {
		burst += ", break before make"
	}
	return fmt.Sprintf("%s, key frames every %v, %s", c.player, c.keyFrames, burst)
}

func zapCases(s Scale, only Only) (all []zapCase, err error) {
	players, err := chosen(only, "player", zapPlayers, func(p string) string { return p })
	if err != nil {
		return nil, err
	}
	usual := []time.Duration{500 * time.Millisecond, time.Second, zapHeldTo, 4 * time.Second}
	distances, err := chosen(only, "keyframes", pick(s, []time.Duration{zapHeldTo}, usual, usual), time.Duration.String)
	if err != nil {
		return nil, err
	}
	for _, d := range distances {
		for _, player := range players {
			all = append(all, zapCase{player, d, true, true}, zapCase{player, d, false, true})
			if d == zapHeldTo && s != Quick {
				all = append(all, zapCase{player, d, true, false}, zapCase{player, d, false, false})
			}
		}
	}
	return all, nil
}

// zapSamples holds measurements in ms.
type zapSamples struct {
	took, frozen []float64
	gateway      []float64 // part of took until the egress gateway had the key frame
	heard        []float64 // time of the sound after the picture
	silent       int       // changes whose sound was not heard
	wrong        int
	first, last  []float64 // ages of the first picture of the new channel, and of one a second later
}

func runCinemaZap(ctx context.Context, env *Env) (*Result, error) {
	changes := pick(env.Scale, 20, 100, 200)
	raw, err := env.CSV("zaps", zapColumns...)
	if err != nil {
		return nil, err
	}
	defer raw.Close()
	cases, err := zapCases(env.Scale, env.Only)
	if err != nil {
		return nil, err
	}
	env.Steps(len(cases))
	r := &Result{Network: "a ring of four switches with two ingress and two egress gateways; Chromium without a window, by WebRTC and by WebSocket, test patterns of 640x360 at 30 pictures a second and 1 Mbit/s"}
	table := Table{
		Title:   "From the key to the first picture of the new channel, and the longest time without a new picture around it, in ms",
		Columns: []string{"player", "key frames every", "burst", "make before break", "changes", "median", "p95", "worst", meanColumn, "until the gateway has the picture: median", "p95", "frozen: median", "p95", "wrong pictures", "sound after the picture: median", "p95", "not heard"},
	}
	ages := Table{
		Title:   "From glass to glass: from when the ingress gateway drew a picture until Chromium showed it, in ms",
		Columns: []string{"player", "key frames every", "burst", "make before break", "first picture: median", "p95", "a second later: median", "p95"},
	}
	for _, c := range cases {
		env.Step("%v", c)
		s, err := env.zaps(ctx, c, changes, raw)
		if err != nil {
			return nil, fmt.Errorf("%v: %w", c, err)
		}
		table.Add(c.player, c.keyFrames, c.burst, c.makeBeforeBreak, len(s.took), ms1(median(s.took)), ms1(quantile(s.took, 0.95)), ms1(quantile(s.took, 1)), meanText(s.took, 1, 1), ms1(median(s.gateway)), ms1(quantile(s.gateway, 0.95)), ms1(median(s.frozen)), ms1(quantile(s.frozen, 0.95)), s.wrong,
			ms1(median(s.heard)), ms1(quantile(s.heard, 0.95)), s.silent)
		ages.Add(c.player, c.keyFrames, c.burst, c.makeBeforeBreak, ms1(median(s.first)), ms1(quantile(s.first, 0.95)), ms1(median(s.last)), ms1(quantile(s.last, 0.95)))
		zapClaims(r, c, s)
	}
	r.Tables = append(r.Tables, table, ages, publishedZaps())
	r.Note("Pictures are told apart by the colour of a square in each test pattern; every picture that Chromium shows is looked at. A picture is wrong if it is of neither channel, or of the old one after the first of the new one. At 30 pictures a second, two that follow each other are 33 ms apart, and 50 or 67 ms as Chromium's clock of 60 pictures a second has it.")
	r.Note("Sound is told apart by the pitch of each test pattern's tone, 5 ms by 5 ms, over the last 11 ms of what the player plays. It is that of the new channel when two looks say so.")
	r.Note("How old a picture is, is read from a clock in it, to 2 ms: from the time at which ffmpeg drew it, before it was encoded, until the page looked at what is shown. The first picture after a burst is the key frame from which the group of pictures began, and so up to their distance old; those that follow it catch up.")
	r.Note("Break before make is make_before_break: false at the egress gateway: the old channel ends before the new one comes, and the last picture of it stands until then.")
	r.Note("Until the gateway has the picture: from the page's request at the egress gateway to the first packet of the new channel's key frame there, through controller, switches and burst. The rest of the time is the page's: its request, and decoder and display.")
	r.Note("Between changes a second passes, and a random part of the distance of key frames.")
	r.Note("Without a burst the change waits for the next key frame, half their distance on average; the old channel is seen until then.")
	return r, nil
}

func publishedZaps() Table {
	t := Table{Title: "Published: table 6.3.1, as the viewer sees it", Columns: []string{"", "s"}}
	t.Add("GENI Cinema", "2")
	t.Add("digital television", "4")
	t.Add("analogue television", "less than 1")
	t.Add("satellite television", "6")
	t.Add("Internet streaming", "5")
	return t
}

func zapClaims(r *Result, c zapCase, s *zapSamples) {
	r.Claim(s.wrong == 0, fmt.Sprintf("%v: no wrong picture", c), "%d", s.wrong)
	r.Claim(median(s.last) <= inMS(zapAge), fmt.Sprintf("%v: from glass to glass at most %v a second later, median", c, zapAge), "%.1f ms", median(s.last))
	if !c.makeBeforeBreak {
		return
	}
	if !c.burst {
		bound := inMS(c.keyFrames) / 2 * (1 + zapSpread/math.Sqrt(float64(len(s.took))))
		r.Claim(median(s.took) <= bound+inMS(zapMedian), fmt.Sprintf("%v: median at most %.0f ms, the wait for a key frame", c, bound+inMS(zapMedian)), "%.1f ms", median(s.took))
		r.Claim(quantile(s.frozen, 0.95) <= inMS(zapFrozen), fmt.Sprintf("%v: picture frozen for at most %v, p95", c, zapFrozen), "%.1f ms", quantile(s.frozen, 0.95))
		return
	}
	if c.keyFrames == zapHeldTo {
		r.Claim(median(s.took) <= inMS(zapMedian), fmt.Sprintf("%v: median at most %v", c, zapMedian), "%.1f ms", median(s.took))
		r.Claim(quantile(s.took, 0.95) <= inMS(zapSlow), fmt.Sprintf("%v: p95 at most %v", c, zapSlow), "%.1f ms", quantile(s.took, 0.95))
		r.Claim(s.silent == 0 && median(s.heard) <= inMS(zapHeard), fmt.Sprintf("%v: the sound is heard at most %v after the picture is seen, median", c, zapHeard), "%.1f ms, %d not heard", median(s.heard), s.silent)
	}
}

// zaps measures how Chromium changes from channel to channel.
func (e *Env) zaps(ctx context.Context, c zapCase, changes int, raw *CSV) (s *zapSamples, err error) {
	s = &zapSamples{}
	err = e.withZaps(ctx, c, func(ctx context.Context, d *testbed.Deployment, l *lab.Lab) error {
		return s.watch(ctx, d, l, filepath.Join(e.Dir, "chromium.log"), c, changes, raw)
	})
	return s, err
}

// withZaps runs f while channels with test patterns are on the air.
func (e *Env) withZaps(ctx context.Context, c zapCase, f func(context.Context, *testbed.Deployment, *lab.Lab) error) error {
	top, roles := testbed.CinemaNetwork("zap", delayline.Params{Rate: 100e6, Delay: 2 * time.Millisecond})
	return e.withLab(ctx, top, func(ctx context.Context, l *lab.Lab) (err error) {
		d, err := testbed.Deploy(ctx, testbed.Options{
			Lab: l, Binary: e.Binary, LogDir: e.Dir, Gateways: roles, EgressConfig: fmt.Sprintf("burst: %v\nmake_before_break: %v\n", c.burst, c.makeBeforeBreak),
		})
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, d.Close()) }()
		for n := range zapChannels {
			err := d.AddChannel(ctx, cinema.ChannelSpec{
				Name: fmt.Sprintf("c%d", n+1), Number: n + 1, Source: gatewayapi.StoredSource(fmt.Sprintf("test:?keyframes=%v", c.keyFrames)), BitRate: zapBitRate,
			})
			if err != nil {
				return err
			}
		}
		if err := d.WaitOnAir(ctx); err != nil {
			return err
		}
		return f(ctx, d, l)
	})
}

func (s *zapSamples) watch(ctx context.Context, d *testbed.Deployment, l *lab.Lab, log string, c zapCase, changes int, raw *CSV) error {
	// On plain HTTP, Chromium offers WebCodecs to pages only if a flag marks the site as secure.
	site := d.PublicURL("out2")
	b, err := testbed.StartBrowser(ctx, l.Host(testbed.Viewer), log, "unsafely-treat-insecure-origin-as-secure="+site)
	if err != nil {
		return err
	}
	defer b.Close()
	if err := b.Open(ctx, site+"/?player="+c.player+"#c1"); err != nil {
		return err
	}
	if err := b.WatchPictures(ctx); err != nil {
		return err
	}
	if err := b.Shows(ctx, 1); err != nil {
		return err
	}
	for i := range changes {
		if err := sleepRandomPhase(ctx, c.keyFrames); err != nil {
			return err
		}
		z, err := b.Zap(ctx, kb.ArrowUp, uint16(i%zapChannels+1), uint16((i+1)%zapChannels+1))
		if err != nil {
			return err
		}
		at, err := d.LastZap(ctx, i+1)
		if err != nil {
			return err
		}
		s.took, s.gateway, s.frozen = append(s.took, inMS(z.Took)), append(s.gateway, inMS(at)), append(s.frozen, inMS(z.Frozen))
		s.first, s.last = append(s.first, inMS(z.First)), append(s.last, inMS(z.Last))
		s.wrong += z.Wrong
		if z.Silent {
			s.silent++
		} else {
			s.heard = append(s.heard, inMS(z.Heard))
		}
		if err := raw.Row(c.player, c.keyFrames, c.burst, c.makeBeforeBreak, i+1, z.Took, at, z.Frozen, z.Heard, z.Wrong, z.First, z.Last); err != nil {
			return err
		}
	}
	return nil
}

// sleepRandomPhase waits for a random part of the distance of key frames. A second passes after each
// change, so that changes would otherwise be in step with key frames.
func sleepRandomPhase(ctx context.Context, keyFrames time.Duration) error {
	return tasks.Sleep(ctx, rand.N(keyFrames))
}
