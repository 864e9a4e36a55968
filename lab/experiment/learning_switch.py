"""A learning switch on os-ken: what its users write first, for comparison."""

from os_ken.base import app_manager
from os_ken.controller import ofp_event
from os_ken.controller.handler import CONFIG_DISPATCHER, MAIN_DISPATCHER, set_ev_cls
from os_ken.lib.packet import ethernet, packet
from os_ken.ofproto import ofproto_v1_3


class LearningSwitch(app_manager.OSKenApp):
    OFP_VERSIONS = [ofproto_v1_3.OFP_VERSION]

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.places = {}

    @set_ev_cls(ofp_event.EventOFPSwitchFeatures, CONFIG_DISPATCHER)
    def connected(self, event):
        switch = event.msg.datapath
        parser, proto = switch.ofproto_parser, switch.ofproto
        miss = [parser.OFPActionOutput(proto.OFPP_CONTROLLER, proto.OFPCML_NO_BUFFER)]
        apply = [parser.OFPInstructionActions(proto.OFPIT_APPLY_ACTIONS, miss)]
        switch.send_msg(parser.OFPFlowMod(switch, priority=0, match=parser.OFPMatch(), instructions=apply))

    @set_ev_cls(ofp_event.EventOFPPacketIn, MAIN_DISPATCHER)
    def packet_in(self, event):
        message = event.msg
        switch = message.datapath
        parser, proto = switch.ofproto_parser, switch.ofproto
        port = message.match["in_port"]
        frame = packet.Packet(message.data).get_protocol(ethernet.ethernet)
        places = self.places.setdefault(switch.id, {})
        places[frame.src] = port
        out = places.get(frame.dst, proto.OFPP_FLOOD)
        actions = [parser.OFPActionOutput(out)]
        if out != proto.OFPP_FLOOD:
            match = parser.OFPMatch(in_port=port, eth_dst=frame.dst, eth_src=frame.src)
            apply = [parser.OFPInstructionActions(proto.OFPIT_APPLY_ACTIONS, actions)]
            switch.send_msg(parser.OFPFlowMod(switch, priority=1, match=match, instructions=apply))
        switch.send_msg(parser.OFPPacketOut(
            switch, buffer_id=proto.OFP_NO_BUFFER, in_port=port, actions=actions, data=message.data))
