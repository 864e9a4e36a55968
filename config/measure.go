package config

// SFlow says how switches report by themselves what they count.
type SFlow struct {
	Listen    Address `yaml:"listen" doc:"Where sFlow is received, by UDP; needed unless measure is poll. What does not come from the address of the switch's own OpenFlow connection is not believed."`
	Collector Address `yaml:"collector" doc:"The same place as switches reach it. If set, Open vSwitch is told to report there, through its database (see ovsdb). Empty: whoever runs the switches configures their sFlow."`
	Sampling  int     `yaml:"sampling" min:"1" max:"1000000000" doc:"Of how many packets Open vSwitch samples one."`
}

func (n *Network) checkMeasure(k *checker, databases OVSDB) {
	polls := n.Measure == "poll"
	if n.SFlow.Collector.IsValid() && databases.Address == "" && len(databases.Switches) == 0 {
		k.fail("network.sflow.collector", "without the databases of switches, which are told", "set ovsdb.address or ovsdb.switches, or leave the collector out")
	}
	switch {
	case !polls && !n.SFlow.Listen.IsValid():
		k.fail("network.sflow.listen", "missing", "network.measure is "+n.Measure+": write "+descriptions[typeAddress])
	case polls && n.SFlow.Listen.IsValid():
		k.fail("network.sflow.listen", "contradicts network.measure, which is poll", "remove it, or set network.measure to sflow or both")
	case polls && n.SFlow.Collector.IsValid():
		k.fail("network.sflow.collector", "contradicts network.measure, which is poll", "remove it, or set network.measure to sflow or both")
	}
}
