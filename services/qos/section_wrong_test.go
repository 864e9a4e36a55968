package qos

import (
	"testing"

	"github.com/sluice-net/sluice/config"
	"github.com/sluice-net/sluice/config/configtest"
	"github.com/sluice-net/sluice/kit"
)

// sectionWrongs are sections that "sluice config check" refuses.
var sectionWrongs = []configtest.Wrong{
	{Name: "plain TCP without samples", Text: "qos: {subflows: {enabled: true, plain_tcp: true}}", Line: 1, Key: "qos.subflows.plain_tcp", Value: "true", Want: "sflow or both"},
	{Name: "plain TCP where nothing is placed", Text: "network: {measure: both, sflow: {listen: '127.0.0.1:6343'}}\nqos: {subflows: {plain_tcp: true}}", Line: 2, Key: "qos.subflows.plain_tcp", Value: "true", Want: "both"},
}

func TestSectionRefuses(t *testing.T) {
	configtest.Refuses(t, sectionWrongs, func() config.Checked {
		return config.DefaultController(kit.Sections([]kit.Definition{Definition()}))
	})
}
