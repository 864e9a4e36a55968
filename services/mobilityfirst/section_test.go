package mobilityfirst

import (
	"testing"

	"github.com/sluice-net/sluice/config"
	"github.com/sluice-net/sluice/config/configtest"
	"github.com/sluice-net/sluice/kit"
)

// sectionWrongs lists sections that "sluice config check" refuses.
var sectionWrongs = []configtest.Wrong{
	{Name: "a name service that is none of its domains", Text: "mobilityfirst: {gnrs: {self: west, domains: {east: '127.0.0.1:5001'}}}", Line: 1, Key: "mobilityfirst.gnrs", Value: "", Want: "among domains"},
	{Name: "a name service at another address than its domain", Text: "mobilityfirst: {gnrs: {listen: '127.0.0.2:5001', self: west, domains: {west: '127.0.0.1:5001'}}}", Line: 1, Key: "mobilityfirst.gnrs", Value: "", Want: "among domains"},
	{Name: "a node without TLS", Text: "mobilityfirst: {nodes: {depot: {url: 'http://192.0.2.7:8440'}}}", Line: 1, Key: "mobilityfirst.nodes.depot.url", Value: "", Want: "https"},
	{Name: "a node with a wrong name", Text: "mobilityfirst: {nodes: {Depot: {url: 'https://192.0.2.7:8440'}}}", Line: 1, Key: "mobilityfirst.nodes.Depot.name", Value: "", Want: "lower-case"},
	{Name: "two nodes at one URL", Text: "mobilityfirst: {nodes: {a: {url: 'https://192.0.2.7:8440'}, b: {url: 'https://192.0.2.7:8440'}}}", Line: 1, Key: "mobilityfirst.nodes.b.url", Value: "", Want: "node a has this one"},
	{Name: "a name service at all addresses", Text: "mobilityfirst: {gnrs: {listen: ':5001'}}", Line: 1, Key: "mobilityfirst.gnrs.listen", Value: "", Want: "one of this machine's"},
	{Name: "Redis of no name service", Text: "mobilityfirst: {gnrs: {redis: {nodes: ['10.0.0.7:6379']}}}", Line: 1, Key: "mobilityfirst.gnrs.redis.nodes", Value: "", Want: "where it is asked"},
	{Name: "Redis without nodes", Text: "mobilityfirst: {gnrs: {listen: '127.0.0.1:5001', redis: {replicas: 1}}}", Line: 1, Key: "mobilityfirst.gnrs.redis", Value: "", Want: "name nodes"},
	{Name: "a user of Redis without a password", Text: "mobilityfirst: {gnrs: {listen: '127.0.0.1:5001', redis: {nodes: ['10.0.0.7:6379'], username: u}}}", Line: 1, Key: "mobilityfirst.gnrs.redis", Value: "", Want: "user and password"},
	{Name: "Redis at no port", Text: "mobilityfirst: {gnrs: {listen: '127.0.0.1:5001', redis: {nodes: ['10.0.0.7:99999']}}}", Line: 1, Key: "mobilityfirst.gnrs.redis", Value: "", Want: "nodes"},
	{Name: "a URL of Redis", Text: "mobilityfirst: {gnrs: {listen: '127.0.0.1:5001', redis: {nodes: ['redis://10.0.0.7:6379']}}}", Line: 1, Key: "mobilityfirst.gnrs.redis.nodes[0]", Value: "redis://", Want: "a host and a port"},
	{Name: "Redis that keeps sometimes", Text: "mobilityfirst: {gnrs: {listen: '127.0.0.1:5001', redis: {nodes: ['10.0.0.7:6379'], fsync: sometimes}}}", Line: 1, Key: "mobilityfirst.gnrs.redis.fsync", Value: "", Want: "everysec"},
}

func TestSectionRefuses(t *testing.T) {
	configtest.Refuses(t, sectionWrongs, func() config.Checked {
		return config.DefaultController(kit.Sections([]kit.Definition{Definition()}))
	})
}
