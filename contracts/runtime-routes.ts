/** Routes of a deployment's services: runtime (interface 4.7; decisions, Deployment services). */
export const runtimeRoutes = {} as const;
