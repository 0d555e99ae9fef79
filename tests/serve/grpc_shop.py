"""A gRPC service in the form that protoc's plug-in gives it, with messages that come with protobuf."""

from __future__ import annotations

from typing import Any

import grpc
from google.protobuf import descriptor_pb2, descriptor_pool
from google.protobuf.wrappers_pb2 import Int64Value, StringValue

NAME = "weft.tests.Shop"
FILE = descriptor_pb2.FileDescriptorProto(
    name="weft/tests/shop.proto",
    package="weft.tests",
    syntax="proto3",
    dependency=["google/protobuf/wrappers.proto"],
    service=[
        descriptor_pb2.ServiceDescriptorProto(
            name="Shop",
            method=[
                descriptor_pb2.MethodDescriptorProto(
                    name="Greet",
                    input_type=".google.protobuf.StringValue",
                    output_type=".google.protobuf.StringValue",
                )
            ],
        )
    ],
)
"""As generated code puts it into the pool of descriptors."""
descriptor_pool.Default().AddSerializedFile(FILE.SerializeToString())  # type: ignore[no-untyped-call]


def add_ShopServicer_to_server(servicer: Any, server: Any) -> None:
    def of_strings(make: Any, method: Any) -> Any:
        return make(
            method, request_deserializer=StringValue.FromString, response_serializer=StringValue.SerializeToString
        )

    handlers = {
        "Greet": of_strings(grpc.unary_unary_rpc_method_handler, servicer.Greet),
        "Missing": of_strings(grpc.unary_unary_rpc_method_handler, servicer.Missing),
        "Count": grpc.unary_stream_rpc_method_handler(
            servicer.Count,
            request_deserializer=Int64Value.FromString,
            response_serializer=Int64Value.SerializeToString,
        ),
        "Collect": of_strings(grpc.stream_unary_rpc_method_handler, servicer.Collect),
        "CollectPlainly": of_strings(grpc.stream_unary_rpc_method_handler, servicer.CollectPlainly),
        "MissingStream": grpc.stream_unary_rpc_method_handler(servicer.MissingStream),
        "Talk": of_strings(grpc.stream_stream_rpc_method_handler, servicer.Talk),
        "TalkPlainly": of_strings(grpc.stream_stream_rpc_method_handler, servicer.TalkPlainly),
    }
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(NAME, handlers),))
    server.add_registered_method_handlers(NAME, handlers)
