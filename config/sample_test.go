package config

// sampleSection is the section of a service, for tests.
type sampleSection struct {
	Enabled bool                  `yaml:"enabled" doc:"Whether it runs."`
	Limit   int                   `yaml:"limit" reload:"yes" min:"0" max:"10" doc:"An even number."`
	Secret  Secret                `yaml:"secret" doc:"Is not shown."`
	Peers   map[string]samplePeer `yaml:"peers" doc:"Peers, by name."`
}

type samplePeer struct {
	TLS TLS `yaml:"tls" doc:"Its certificates."`
}

func (s *sampleSection) Check(k *Checker, _ *Controller) {
	k.Require(s.Limit%2 == 0, "sample.limit", "odd", "an even number")
}

func sampleSections() []ServiceSection {
	return []ServiceSection{{"sample", "A service.", &sampleSection{Enabled: true}}}
}

func sampleController() *Controller { return DefaultController(sampleSections()) }

func loadSample(s Sources) (*Controller, error) {
	c := sampleController()
	return c, Load(s, c)
}
