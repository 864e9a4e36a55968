"""A learning switch on os-ken, for comparison: MAC addresses are learned from
packet-ins; a packet to a known address gets a rule and is sent on."""
import sys

from os_ken.lib import hub
hub.patch(thread=False)

from os_ken import cfg
from os_ken.base.app_manager import AppManager, OSKenApp
from os_ken.controller import ofp_event
from os_ken.controller.handler import CONFIG_DISPATCHER, MAIN_DISPATCHER, set_ev_cls
from os_ken.lib.packet import ethernet, packet
from os_ken.ofproto import ofproto_v1_3


class Learning(OSKenApp):
    OFP_VERSIONS = [ofproto_v1_3.OFP_VERSION]

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.places = {}

    @set_ev_cls(ofp_event.EventOFPSwitchFeatures, CONFIG_DISPATCHER)
    def connected(self, event):
        path = event.msg.datapath
        to_us = path.ofproto_parser.OFPActionOutput(path.ofproto.OFPP_CONTROLLER, path.ofproto.OFPCML_NO_BUFFER)
        self.add(path, 0, path.ofproto_parser.OFPMatch(), [to_us])

    def add(self, path, priority, match, actions):
        parser = path.ofproto_parser
        apply = parser.OFPInstructionActions(path.ofproto.OFPIT_APPLY_ACTIONS, actions)
        path.send_msg(parser.OFPFlowMod(datapath=path, priority=priority, match=match, instructions=[apply]))

    @set_ev_cls(ofp_event.EventOFPPacketIn, MAIN_DISPATCHER)
    def came_in(self, event):
        msg = event.msg
        path, parser, port = msg.datapath, msg.datapath.ofproto_parser, msg.match["in_port"]
        eth = packet.Packet(msg.data).get_protocol(ethernet.ethernet)
        places = self.places.setdefault(path.id, {})
        places[eth.src] = port
        out = places.get(eth.dst, path.ofproto.OFPP_FLOOD)
        actions = [parser.OFPActionOutput(out)]
        if out != path.ofproto.OFPP_FLOOD:
            self.add(path, 1, parser.OFPMatch(in_port=port, eth_dst=eth.dst, eth_src=eth.src), actions)
        path.send_msg(parser.OFPPacketOut(datapath=path, buffer_id=msg.buffer_id, in_port=port, actions=actions, data=msg.data))


if __name__ == "__main__":
    cfg.CONF(args=["--ofp-listen-host", "127.0.0.1", "--ofp-tcp-listen-port", sys.argv[1]], project="os_ken", default_config_files=[])
    sys.modules["osken_learning"] = sys.modules["__main__"]
    manager = AppManager.get_instance()
    manager.load_apps(["osken_learning", "os_ken.controller.ofp_handler"])
    services = manager.instantiate_apps(**manager.create_contexts())
    hub.joinall(services)
