package experiment

import (
	"context"
	"fmt"
	"slices"
	"strings"
)

// Experiment is one measurement that can be repeated by its name.
type Experiment struct {
	Name     string
	Title    string
	Question string   // what the reader learns from it, in one sentence
	Source   string   // the publication of the figures; empty if there is none
	Varies   []string // names of the parameters that Only can restrict
	Run      func(context.Context, *Env) (*Result, error)
}

// All lists the experiments in the order in which the documentation explains them.
func All() []Experiment {
	return []Experiment{
		sosTable1(), sosSockets(), sosChunk(), sosAgents(), sosClients(), sosStreams(), sosDisk(), sosPeers(), sosTransports(), sosStart(), sosNeighbours(), sosSites(), sosSetup(), sosSessions(), sosShort(), agentRelay(), packetIn(), hostileSwitch(),
		handoverModel(), handoverDomains(), handoverPolicies(), handoverMoves(), handoverSilence(), handoverPeers(), handoverScale(),
		qosCritical(), qosAcceptance(), qosLatency(), qosPeers(), multipathGain(), multipathAfter(), multipathCut(), multipathFatTree(), multipathModel(), multipathControl(), hostIdle(),
		mfNames(),
		mfChunks(),
		mfSetup(),
		mfFlows(),
		mfGNRS(),
		mfMobility(),
		mfMoves(),
		mfMultihoming(),
		qosAlgorithms(),
		cinemaZap(), cinemaDelay(), cinemaTree(), cinemaScale(), cinemaPeers(),
	}
}

// Find returns the experiment with the given name. The error lists the names that exist.
func Find(name string) (Experiment, error) {
	all := All()
	i := slices.IndexFunc(all, func(e Experiment) bool { return e.Name == name })
	if i >= 0 {
		return all[i], nil
	}
	names := make([]string, len(all))
	for i, e := range all {
		names[i] = e.Name
	}
	return Experiment{}, fmt.Errorf("no experiment %q; there are: %s", name, strings.Join(names, ", "))
}

// Scale selects how much of an experiment is run.
type Scale string

// These are the scales. Quick takes a minute or two and shows that everything works; its figures
// are rough. Normal is what the documentation quotes. Full covers every parameter over the
// published range.
const (
	Quick  Scale = "quick"
	Normal Scale = "normal"
	Full   Scale = "full"
)

// ParseScale parses the name of a scale.
func ParseScale(s string) (Scale, error) {
	switch scale := Scale(s); scale {
	case Quick, Normal, Full:
		return scale, nil
	}
	return "", fmt.Errorf("no scale %q; there are: quick, normal, full", s)
}

// pick returns the value for a scale.
func pick[T any](s Scale, quick, normal, full T) T {
	switch s {
	case Quick:
		return quick
	case Full:
		return full
	}
	return normal
}
