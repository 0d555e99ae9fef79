"""A gRPC service in the form that protoc's plug-in gives it, with messages that come with protobuf."""

from __future__ import annotations

from typing import Any

import grpc
from google.protobuf.wrappers_pb2 import Int64Value, StringValue

NAME = "weft.tests.Shop"


def add_ShopServicer_to_server(servicer: Any, server: Any) -> None:
    handlers = {
        "Greet": grpc.unary_unary_rpc_method_handler(
            servicer.Greet,
            request_deserializer=StringValue.FromString,
            response_serializer=StringValue.SerializeToString,
        ),
        "Missing": grpc.unary_unary_rpc_method_handler(
            servicer.Missing,
            request_deserializer=StringValue.FromString,
            response_serializer=StringValue.SerializeToString,
        ),
        "Count": grpc.unary_stream_rpc_method_handler(
            servicer.Count,
            request_deserializer=Int64Value.FromString,
            response_serializer=Int64Value.SerializeToString,
        ),
        "Collect": grpc.stream_unary_rpc_method_handler(
            servicer.Collect,
            request_deserializer=StringValue.FromString,
            response_serializer=StringValue.SerializeToString,
        ),
        "CollectPlainly": grpc.stream_unary_rpc_method_handler(
            servicer.CollectPlainly,
            request_deserializer=StringValue.FromString,
            response_serializer=StringValue.SerializeToString,
        ),
        "MissingStream": grpc.stream_unary_rpc_method_handler(servicer.MissingStream),
        "Talk": grpc.stream_stream_rpc_method_handler(
            servicer.Talk,
            request_deserializer=StringValue.FromString,
            response_serializer=StringValue.SerializeToString,
        ),
        "TalkPlainly": grpc.stream_stream_rpc_method_handler(
            servicer.TalkPlainly,
            request_deserializer=StringValue.FromString,
            response_serializer=StringValue.SerializeToString,
        ),
    }
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(NAME, handlers),))
    server.add_registered_method_handlers(NAME, handlers)
