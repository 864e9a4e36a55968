package experiment

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/chromedp/chromedp/kb"

	"github.com/sluice-net/sluice/lab"
	"github.com/sluice-net/sluice/lab/delayline"
	"github.com/sluice-net/sluice/lab/testbed"
)

func cinemaPeers() Experiment {
	return Experiment{
		Name:     "cinema-peers",
		Title:    "The time of a change of channel in Chromium, by Cinema and by others",
		Question: "Is a change of channel visible sooner with Cinema than with a media server that starts a new session, or that changes the source of the old one?",
		Source:   "dissertation 2017, table 6.3.1",
		Varies:   []string{"peer"},
		Run:      runCinemaPeers,
	}
}

// channelPeer is a way to change channel: a player with its server.
type channelPeer struct {
	name, what string
	kind       string // kind of the player; empty means Sluice's
	keep       bool   // Janus keeps the last key frame
}

var channelPeers = []channelPeer{
	{"cinema", "Cinema, with burst", "", false},
	{"cinema-whep", "Cinema's gateway, a new session by WHEP", "whep", false},
	{"janus-switch", "Janus, another source in the same session", "janus-switch", false},
	{"janus-switch-kept", "Janus, the same, last key frame kept", "janus-switch", true},
	{"janus-join", "Janus, a new session", "janus-join", false},
	{"janus-join-kept", "Janus, the same, last key frame kept", "janus-join", true},
}

// peerSamples holds the measurements of one way.
type peerSamples struct {
	zapSamples
	failed int
}

func runCinemaPeers(ctx context.Context, env *Env) (*Result, error) {
	peers, err := chosen(env.Only, "peer", channelPeers, func(p channelPeer) string { return p.name })
	if err != nil {
		return nil, err
	}
	raw, err := env.CSV("peers", "peer", "number", "zap_seconds", "frozen_seconds", "wrong_pictures")
	if err != nil {
		return nil, err
	}
	defer raw.Close()
	changes := pick(env.Scale, 10, 50, 200)
	env.Steps(len(peers))
	r := &Result{Network: fmt.Sprintf("Cinema: as in cinema-zap. Janus: a server and Chromium at one switch. Test patterns of 640x360 at 30 pictures a second, key frames every %v, encoded alike", zapHeldTo)}
	table := Table{
		Title:   "From the key to the first picture of the new channel, and the longest time without a new picture around it, in ms",
		Columns: []string{"", "changes", "median", "p95", "worst", meanColumn, "frozen: median", "p95", "wrong pictures", "not seen within 10 s"},
	}
	medians := map[string]float64{}
	for _, p := range peers {
		env.Step("%s", p.what)
		if _, err := exec.LookPath("janus"); err != nil && strings.HasPrefix(p.kind, "janus") {
			r.Note("%s was not measured: janus is missing (Debian's package janus).", p.what)
			continue
		}
		s, err := env.peer(ctx, p, changes, raw)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", p.what, err)
		}
		medians[p.name] = median(s.took)
		table.Add(p.what, len(s.took), ms1(median(s.took)), ms1(quantile(s.took, 0.95)), ms1(quantile(s.took, 1)), meanText(s.took, 1, 1), ms1(median(s.frozen)), ms1(quantile(s.frozen, 0.95)), s.wrong, s.failed)
	}
	r.Tables = append(r.Tables, table, publishedZaps())
	ours, measured := medians["cinema"]
	for _, p := range peers {
		if theirs, ok := medians[p.name]; ok && measured && p.name != "cinema" {
			r.Claim(ours < theirs, "sooner than "+p.what+" (median)", "%.1f ms, %.1f ms", ours, theirs)
		}
	}
	r.Note("All are watched in the same Chromium and measured by the same script, which looks at every picture that it shows. The players of the others have no more in them than a change needs. For Janus the key that is pressed has no way through a network before the server, and there is no sound.")
	r.Note("Not compared: MediaMTX, SRS and LiveKit, which Debian does not have, and of which MediaMTX cannot be had from Go's module proxy either; mediasoup (npm), which is a library to write a server with; node-media-server (npm) and nginx with RTMP, which do not speak WebRTC and give HLS or FLV.")
	return r, nil
}

// peer measures how Chromium changes from channel to channel in one way.
func (e *Env) peer(ctx context.Context, p channelPeer, changes int, raw *CSV) (*peerSamples, error) {
	s := &peerSamples{}
	switch {
	case p.kind == "":
		zaps, err := e.CSV("zaps", zapColumns...)
		if err != nil {
			return nil, err
		}
		defer zaps.Close()
		own, err := e.zaps(ctx, zapCase{zapPlayers[0], zapHeldTo, true, true}, changes, zaps)
		if err != nil {
			return nil, err
		}
		s.zapSamples = *own
		return s, nil
	case p.kind == "whep":
		return s, e.withZaps(ctx, zapCase{zapPlayers[0], zapHeldTo, true, true}, func(ctx context.Context, d *testbed.Deployment, l *lab.Lab) error {
			url := d.PublicURL("out2")
			return s.watch(ctx, l, filepath.Join(e.Dir, p.name+".log"), p, url+"/channels", url, changes, raw)
		})
	}
	top := lab.Topology{
		Name: "janus", Switches: []lab.Switch{{Name: "s1", Flows: []string{"actions=NORMAL"}}},
		Hosts: []lab.Host{{Name: "server"}, {Name: testbed.Viewer}},
		Links: []lab.Link{lab.Both("server", "s1", delayline.Params{}), lab.Both(testbed.Viewer, "s1", delayline.Params{})},
	}
	return s, e.withLab(ctx, top, func(ctx context.Context, l *lab.Lab) error {
		j, err := testbed.StartJanus(ctx, l.Host("server"), e.Dir, zapChannels, zapHeldTo, p.keep)
		if err != nil {
			return err
		}
		defer j.Close()
		return s.watch(ctx, l, filepath.Join(e.Dir, p.name+".log"), p, j.URL+"/info", j.URL, changes, raw)
	})
}

// watch measures changes of channel with a player that is not Sluice's.
func (s *peerSamples) watch(ctx context.Context, l *lab.Lab, log string, p channelPeer, page, url string, changes int, raw *CSV) error {
	b, err := testbed.StartBrowser(ctx, l.Host(testbed.Viewer), log)
	if err != nil {
		return err
	}
	defer b.Close()
	if err := b.Open(ctx, page); err != nil {
		return err
	}
	if err := b.PlayBy(ctx, p.kind, url, zapChannels); err != nil {
		return err
	}
	for i := range changes {
		from, to := uint16(i%zapChannels+1), uint16((i+1)%zapChannels+1)
		if err := sleepRandomPhase(ctx, zapHeldTo); err != nil {
			return err
		}
		z, err := b.Zap(ctx, kb.ArrowUp, from, to)
		switch {
		case errors.Is(err, testbed.ErrNoPicture):
			s.failed++
			continue
		case err != nil:
			return err
		}
		s.took, s.frozen = append(s.took, inMS(z.Took)), append(s.frozen, inMS(z.Frozen))
		s.wrong += z.Wrong
		if err := raw.Row(p.name, i+1, z.Took, z.Frozen, z.Wrong); err != nil {
			return err
		}
	}
	return nil
}
